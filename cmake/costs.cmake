# SPDX-License-Identifier: MIT
# The slowest tests, longest first. ctest starts them in this order, so that no long test runs alone at the end.
# A test that is missing here starts later. "make test" prints the five slowest tests of each build.

set(slowest end_to_end smollm2_lora cli_train train_run device_train_cuda_emulated selftest curves_pjrt unbounded
    selftest_cuda_emulated bpe_train selftest_pjrt check graph_text random_passes memory pjrt_real
    cli_families_cuda_emulated families_train_cuda_emulated
    loss_scale_pjrt models_pjrt precision device_train train_plan cuda_products smollm2 exact
    exact_cuda_emulated exact_cuda_hopper engine engine_cuda_emulated models_cuda_emulated engine_rules
    loss_scale_cuda_emulated engine_reference windows_cuda_emulated
    selftest_cuda_hopper_attention_grad selftest_cuda_emulated_attention_grad selftest_avx2 selftest_amx
    op_passes selftest_reference selftest_avx512 selftest_amx_emulated curves cli_flags tokenizer
    tokenizer_oracle cli_lora resume_kill checkpoints_oracle quant_packed parity_pjrt attack)
list(LENGTH slowest cost)
foreach(name IN LISTS slowest)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST ${cost})
    endif()
    math(EXPR cost "${cost} - 1")
endforeach()
