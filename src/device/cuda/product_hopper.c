/* SPDX-License-Identifier: MIT */
/*
 * product_hopper.c - where products may be those of our kernels for Hopper: not at all in a build without them, nor on
 * another GPU, nor when they are too small to be timed.
 */
#include "device/cuda/hopper_product.h"
#include "device/cuda/product_priv.h"

#if WF_CUDA_HOPPER_PRODUCTS

bool wf_product_hopper_suits(const wf_cuda_products *all, const wf_cuda_product *p)
{
    const double size = (double)p->m * (double)p->n * (double)p->k;
    return all->device->major == 9 && all->device->minor == 0 && size >= wf_product_small &&
           wf_cuda_hopper_takes(p);
}

int wf_product_hopper_count(void)
{
    return WF_HOPPER_TILES;
}

wf_status wf_product_hopper_run(const wf_cuda_work *w, const wf_cuda_product *p, uint64_t number)
{
    WF_TRY(
        wf_cuda_hopper_multiply(w->l, p, (wf_hopper_tiles)number, w->scratch, wf_product_room(p)));
    return wf_product_add_rows(w, p);
}

#else

bool wf_product_hopper_suits(const wf_cuda_products *all, const wf_cuda_product *p)
{
    (void)all, (void)p;
    return false;
}

int wf_product_hopper_count(void)
{
    return 0;
}

wf_status wf_product_hopper_run(const wf_cuda_work *w, const wf_cuda_product *p, uint64_t number)
{
    (void)w, (void)p, (void)number;
    return WF_ERR_UNSUPPORTED;
}

#endif
