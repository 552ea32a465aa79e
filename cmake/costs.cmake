# SPDX-License-Identifier: MIT
# The tests of more than about three seconds, longest first. ctest starts them in this order, so that no long test
# runs alone at the end. They and the tests below have the label "slow": "make check" omits them. "make test" prints
# the five slowest tests of each build.

set(slowest end_to_end smollm2_lora walkthrough cli_train train_run device_train_cuda_emulated selftest curves_pjrt
    unbounded selftest_cuda_emulated bpe_train selftest_pjrt check graph_text random_passes memory pjrt_real
    cli_families_cuda_emulated families_train_cuda_emulated
    loss_scale_pjrt models_pjrt precision device_train train_plan cuda_products smollm2 exact
    exact_cuda_emulated exact_cuda_hopper engine engine_cuda_emulated models_cuda_emulated engine_rules
    engine_check parity_cuda_emulated loss_scale_cuda_emulated engine_reference windows_cuda_emulated
    engine_cuda_hopper cuda_device selftest_cuda_hopper_attention_grad selftest_cuda_emulated_attention_grad selftest_avx2 selftest_amx
    op_passes selftest_reference selftest_avx512 selftest_amx_emulated curves cli_flags tokenizer
    tokenizer_oracle cli_lora resume_kill checkpoints_oracle quant_packed parity_pjrt attack
    tour cli_families convert windows_reference samples checkpoint_faults template_oracle cli_convert windows
    loader cli_outputs gguf imatrix cli_prepare engine_crowd cli_plan setups cli_models quant_ops quant adapter_bad
    models_written passes quant_table families_train cli_foreign models demo checkpoint cli_bench amx adapter_train
    evidence examples install_check tokenizer_models)
list(LENGTH slowest cost)
foreach(name IN LISTS slowest)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST ${cost})
    endif()
    math(EXPR cost "${cost} - 1")
endforeach()

# All tests of a plugin are slow, and these of one instruction set or other device.
get_directory_property(tests TESTS)
string(JOIN "|" sets ${WEFT_SIMD_SETS} ${WEFT_TILE_SETS} reference check cuda cublaslt)
foreach(name IN LISTS tests)
    if(name IN_LIST slowest OR name MATCHES "^(engine|quant_packed|selftest)_(${sets})(_|$)|_pjrt")
        set_property(TEST ${name} APPEND PROPERTY LABELS slow)
    endif()
endforeach()
