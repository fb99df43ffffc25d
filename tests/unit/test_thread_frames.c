/* Messages of which only the frames were posted, or only the frames matter: which phase of which program it was.  Each
 * names its thread; what it says was read off by hand (thread_case.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "thread_case.h"

#define ADVICE2 " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."

static const struct thread threads[] = {
	{"huggingface/trl#5207, four processes on a card",
	 "  FAILED tests/test_dpo_trainer.py::TestDPOTrainer::test_train_toolcall_data - torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 76.00 "
	 "MiB. GPU 0 has a total capacity of 14.74 GiB of which 42.19 MiB is free. Process 21219 has 284.00 MiB memory in use. Process 21222 has 3.40 GiB "
	 "memory in use. Process 21213 has 258.00 MiB memory in use. Process 21216 has 10.77 GiB memory in use. Of the allocated memory 10.59 GiB is allocated "
	 "by PyTorch, and 42.18 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
	 "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
	 "torch", "76.00 MiB", "14.74 GiB", "42.19 MiB", "10.59 GiB", "42.18 MiB", 0, -1, OOM_CRASH_TEST, OOM_CAUSE_OTHER_PROCESS},
	{"NVIDIA-NeMo/RL#2871, reworded",
	 "  → DistributedLogprob.forward → _compute_distributed_log_softmax (model_utils.py:59)\n      sum_exp_logits = vocab_parallel_logits.exp().sum(-1, "
	 "keepdim=True).float()\ntorch.OutOfMemoryError: Tried to allocate 12.60 GiB. GPU had 12.44 GiB free of 79.19",
	 "torch", "12.60 GiB", NO, "12.44 GiB", NO, NO, -1, -1, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"dhcode-cpp/X-R1#14",
	 "[rank0]:   File \"/x/transformers/trainer.py\", line 3675, in training_step\n[rank0]:     loss = self.compute_loss(model, inputs)\n[rank0]:   File "
	 "\"/x/trl/trainer/grpo_trainer.py\", line 444, in compute_loss\n[rank0]:     per_token_logps = get_per_token_logps(model, prompt_completion_ids)\n"
	 "[rank0]: torch.OutOfMemoryError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, 0, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"ultralytics/yolov3#1503",
	 "File \"/x/yolov3/utils/utils.py\", line 403, in compute_loss\n    lobj += BCEobj(pi[..., 4], tobj)  # obj loss\n  File \"/x/torch/nn/modules/"
	 "module.py\", line 722, in _call_impl\n    result = self.forward(*input, **kwargs)\n  File \"/x/torch/nn/modules/loss.py\", line 631, in forward\n  "
	 "File \"/x/torch/nn/functional.py\", line 2540, in binary_cross_entropy_with_logits\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 MiB "
	 "(GPU 0; 15.90 GiB total capacity; 14.37 GiB already allocated; 1.88 MiB free; 15.03 GiB reserved in total by PyTorch)\n     0/299     15.8G      "
	 "3.99     0.358         0      4.35        22       608:  63% 34/54 [00:42<00:25,  1.26s/it]",
	 "torch", "2.00 MiB", "15.90 GiB", "1.88 MiB", "14.37 GiB", "15.03 GiB", 0, -1, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"bmaltais/kohya_ss#1048, Rich on Windows",
	 "│ C:\\kohya_ss\\venv\\lib\\site-packages\\torch\\cuda\\amp\\grad_scaler.py:290 in _maybe_opt_step          │\n│                                  │\n│   "
	 "287 │   def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):                │\n│   288 │   │   retval = None             │\n│ ❱ 290 "
	 "│   │   │   retval = optimizer.step(*args, **kwargs)                                       │\n│   291 │   │   return retval  │\n╰────╯\n"
	 "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
	 "torch", "20.00 MiB", NO, NO, NO, NO, -1, -1, OOM_CRASH_OPTIMIZER, OOM_CAUSE_TOO_LARGE},
	{"pytorch/pytorch#29198",
	 "Traceback (most recent call last):\n File \"train.py\", line 29, in train\n   optimizer.step()\n File \"/x/torch/optim/adam.py\", line 77, in "
	 "step\n   state['exp_avg_sq'] = torch.zeros_like(p.data)\nRuntimeError: CUDA out of memory. Tried to allocate 352.00 MiB (GPU 0; 7.92 GiB total "
	 "capacity; 1.67 GiB already allocated; 156.00 MiB free; 124.28 MiB cached)",
	 "torch", "352.00 MiB", "7.92 GiB", "156.00 MiB", "1.67 GiB", "124.28 MiB", 0, -1, OOM_CRASH_OPTIMIZER, OOM_CAUSE_OTHER_PROCESS},
	{"d8ahazard/sd_dreambooth_extension#287, Windows",
	 "Traceback (most recent call last):\n  File \"H:\\AI\\x\\train_dreambooth.py\", line 1111, in main\n    optimizer.step()\n  File "
	 "\"H:\\AI\\x\\torch\\optim\\lr_scheduler.py\", line 65, in wrapper\n    return wrapped(*args, **kwargs)\n  File \"H:\\AI\\x\\torch\\optim\\adamw.py\", line "
	 "148, in step\n    state['exp_avg_sq'] = torch.zeros_like(p, memory_format=torch.preserve_format)\nRuntimeError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_OPTIMIZER, OOM_CAUSE_TOO_LARGE},
	{"AUTOMATIC1111/stable-diffusion-webui#3213, Windows",
	 "Traceback (most recent call last):\n  File \"D:\\x\\modules\\ui.py\", line 212, in f\n    res = list(func(*args, **kwargs))\n  File "
	 "\"D:\\x\\modules\\txt2img.py\", line 44, in txt2img\n    processed = process_images(p)\n  File \"D:\\x\\modules\\processing.py\", line 411, in "
	 "process_images\n    samples_ddim = p.sample(conditioning=c)\n  File \"D:\\x\\torch\\nn\\modules\\module.py\", line 1130, in _call_impl\n    return "
	 "forward_call(*input, **kwargs)\nRuntimeError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE},
	{"AUTOMATIC1111/stable-diffusion-webui#10619, the middle of it",
	 "  File \"D:\\x\\modules\\sd_samplers_kdiffusion.py\", line 166, in forward\n    x_out[a:b] = self.inner_model(x_in[a:b], sigma_in[a:b])\n  File "
	 "\"D:\\x\\torch\\nn\\modules\\module.py\", line 1501, in _call_impl\n    return forward_call(*args, **kwargs)\n  File "
	 "\"D:\\x\\k_diffusion\\external.py\", line 112, in forward\n    eps = self.get_eps(input * c_in)\ntorch.cuda.OutOfMemoryError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE},
	{"open-mmlab/mmdetection#6054, Windows",
	 "[>>>>>>>    ] 63/399, 0.2 task/s, elapsed: 277s, ETA:  1479sTraceback (most recent call last):\n  File \"tools/test.py\", line 206, in main\n    outputs "
	 "= single_gpu_test(model, data_loader, args.show)\n  File \"C:\\x\\mmdet\\apis\\test.py\", line 31, in single_gpu_test\n    result = model(return_loss=False, "
	 "rescale=True, **data)\n  File \"C:\\x\\torch\\nn\\modules\\module.py\", line 1051, in _call_impl\nRuntimeError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_EVAL, OOM_CAUSE_EVAL_LOGITS},
	{"open-mmlab/mmdetection#5449, evaluation as a hook of training",
	 "  File \"/x/mmcv/runner/epoch_based_runner.py\", line 54, in train\n    self.call_hook('after_train_epoch')\n  File \"/x/mmcv/runner/base_runner.py\", "
	 "line 307, in call_hook\n    getattr(hook, fn_name)(self)\n  File \"/x/mmdet/core/evaluation/eval_hooks.py\", line 147, in after_train_epoch\n    results = "
	 "single_gpu_test(runner.model, self.dataloader, show=False)\nRuntimeError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_EVAL, OOM_CAUSE_EVAL_LOGITS},
	{"facebookresearch/detectron2#1514",
	 "<ipython-input-7> in fromPathGetAll(path)\n      1 def fromPathGetAll(path):\n      2     img = cv2.imread(path)\n----> 3     pred = predictor(img)\n      4 "
	 "    raw_bbxs = pred['instances'].pred_boxes\n\n~/x/detectron2/engine/defaults.py in __call__(self, original_image)\n--> 218             predictions = "
	 "self.model([inputs])[0]\n\n~/x/torch/nn/modules/module.py in __call__(self, *input, **kwargs)\n--> 532             result = self.forward(*input, "
	 "**kwargs)\n\nRuntimeError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE},
	{"DachengLi1/LongChat#9, a path broken by its box",
	 "│ /x/torch/distributed/fsdp/fla │\n│ t_param.py:462 in _init_flat_param                                                               │\n│              │\n│   "
	 "459 │   │   │   \"Passed-in `params` were not found in the module tree\\n\"                      │\n│ ❱  462 │   │   self.flat_param = "
	 "FlatParamHandle.flatten_params(                                 │\n│    463 │   │   │   params_to_flatten, requires_grad   │\n╰────╯\nOutOfMemoryError: CUDA "
	 "out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_INIT, OOM_CAUSE_TOO_LARGE},
	{"meta-pytorch/torchtune#2071",
	 "[rank6]:   File \"/x/torch/distributed/_composable/fsdp/_fsdp_state.py\", line 232, in _pre_forward\n[rank6]:     args, kwargs = "
	 "self._fsdp_param_group.pre_forward(module, args, kwargs)\n[rank6]:   File \"/x/torch/distributed/_composable/fsdp/_fsdp_param_group.py\", line 257, in "
	 "wait_for_unshard\n[rank6]:     foreach_all_gather_copy_out(\n[rank6]: torch.OutOfMemoryError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, 6, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"huggingface/transformers#35636, wrapped by FSDP",
	 "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"/x/finetuning.py\", line 281, in main\n[rank2]:     model = FullyShardedDataParallel(\n"
	 "[rank2]:   File \"/x/torch/distributed/fsdp/fully_sharded_data_parallel.py\", line 509, in __init__\n[rank2]:     _init_param_handle_from_module(\n[rank2]: "
	 "  File \"/x/torch/distributed/fsdp/_init_utils.py\", line 926, in _move_module_to_device\n[rank2]:     param.data = param.to(device_from_device_id)\n"
	 "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 2 has a total capacity of 39.39 GiB of which 28.31 MiB is free.",
	 "torch", "64.00 MiB", "39.39 GiB", "28.31 MiB", NO, NO, 2, 2, OOM_CRASH_INIT, OOM_CAUSE_TOO_LARGE},
	{"huggingface/trl#3436, the message before its frames",
	 "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 388.00 MiB. GPU 0 has a total capacity of 9.68 GiB of which 95.75 MiB is free. Including "
	 "non-PyTorch memory, this process has 9.54 GiB memory in use. Of the allocated memory 6.61 GiB is allocated by PyTorch, and 2.57 GiB is reserved by PyTorch "
	 "but unallocated." ADVICE2 "\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/x/sft.py\", line 67, in <module>\n[rank0]:     "
	 "trainer.train()\n[rank0]:   File \"/x/transformers/trainer.py\", line 3782, in training_step\n[rank0]:     self.accelerator.backward(loss, **kwargs)\n",
	 "torch", "388.00 MiB", "9.68 GiB", "95.75 MiB", "6.61 GiB", "2.57 GiB", 0, -1, OOM_CRASH_BACKWARD, OOM_CAUSE_FRAGMENTATION},
	{"pytorch/pytorch#149640",
	 "  File \"/x/torch/nn/modules/module.py\", line 2034, in _load_from_state_dict\n    hook(state_dict, prefix, local_metadata, strict)\n  File "
	 "\"/x/torch/distributed/fsdp/_state_dict_utils.py\", line 849, in _pre_load_state_dict_hook\n    _pre_load_state_dict_hook_fn[fsdp_state]\n"
	 "torch.OutOfMemoryError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_LOAD, OOM_CAUSE_TOO_LARGE},
	{"amdegroot/ssd.pytorch#447, the model is built on the card",
	 "Traceback (most recent call last):\n  File \"train.py\", line 257, in <module>\n    train()\n  File \"train.py\", line 97, in train\n    ssd_net = "
	 "build_ssd('train', cfg['min_dim'])\n  File \"/x/ssd.py\", line 136, in vgg\n    conv2d = nn.Conv2d(in_channels, v, kernel_size=3, padding=1)\n  File "
	 "\"/x/torch/nn/modules/conv.py\", line 41, in __init__\n    out_channels, in_channels // groups, *kernel_size))\nRuntimeError: CUDA error: out of memory",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_INIT, OOM_CAUSE_UNKNOWN},
	{"nianticlabs/monodepth2#236, as a debugger shows it",
	 "Exception has occurred: RuntimeError\nCUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 2.81 GiB already allocated; 25.38 "
	 "MiB free; 3.06 GiB reserved in total by PyTorch)\n  File \"/x/monodepth2/layers.py\", line 248, in forward\n    SSIM_d = (mu_x ** 2 + mu_y ** 2 + self.C1) "
	 "* (sigma_x + sigma_y + self.C2)\n  File \"/x/monodepth2/trainer.py\", line 412, in compute_reprojection_loss\n    ssim_loss = self.ssim(pred, target)\n  "
	 "File \"/x/monodepth2/trainer.py\", line 194, in train\n    self.run_epoch()\n",
	 "torch", "20.00 MiB", "7.93 GiB", "25.38 MiB", "2.81 GiB", "3.06 GiB", 0, -1, OOM_CRASH_FORWARD, OOM_CAUSE_OTHER_PROCESS},
	{"huggingface/pytorch-image-models#432, on the host",
	 "<ipython-input-8> in train_epoch(epoch, model, device)\n     63 #         loss.backward()\n---> 64         loss.backward(create_graph=second_order)\n     65 "
	 "        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\n     66         optimizer.step()\n\n~/x/torch/tensor.py in backward(self, "
	 "gradient)\n    219                 retain_graph=retain_graph,\n\nRuntimeError: [enforce fail at CPUAllocator.cpp:65] . DefaultCPUAllocator: can't allocate "
	 "memory: you tried to allocate 359661568 bytes. Error code 12 (Cannot allocate memory)",
	 "torch-cpu", "359661568 bytes", NO, NO, NO, NO, -1, -1, OOM_CRASH_BACKWARD, OOM_CAUSE_HOST_RAM},
	{"pytorch/pytorch#31302, on the host",
	 "Epoch 0\nTraceback (most recent call last):\n  File \"train.py\", line 184, in train\n    ntt[0], ntt[1], ntt[2])\n  File \"/x/torch/nn/modules/module.py\", "
	 "line 493, in __call__\n    result = self.forward(*input, **kwargs)\n  File \"/x/model/GAT.py\", line 18, in forward\n    x = torch.cat([att(x, adj) for att in "
	 "self.attentions], dim=1)\nRuntimeError: [enforce fail at CPUAllocator.cpp:56] posix_memalign(&data, gAlignment, nbytes) == 0. 12 vs 0",
	 "torch-cpu", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_FORWARD, OOM_CAUSE_HOST_RAM},
	{"mlcommons/algorithmic-efficiency#425",
	 "Traceback (most recent call last):\n  File \"submission_runner.py\", line 300, in train_once\n    optimizer_state, model_params, model_state = update_params(\n"
	 "  File \"/x/baselines/adamw/pytorch/submission.py\", line 115, in update_params\n    optimizer_state['optimizer'].step()\n  File "
	 "\"/x/torch/optim/lr_scheduler.py\", line 69, in wrapper\n    return wrapped(*args, **kwargs)\ntorch.cuda.OutOfMemoryError: CUDA out of memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_OPTIMIZER, OOM_CAUSE_TOO_LARGE},
};

static void test_thread_frames(void **state)
{
	(void)state;
	check_threads(threads, sizeof(threads) / sizeof(threads[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_thread_frames)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
