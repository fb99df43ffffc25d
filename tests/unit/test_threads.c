/* Messages as people posted them, cut to the lines a machine wrote; each names its thread.  What each says was read off by
 * hand (thread_case.h). */
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
	{"SJTU-ViSYS-team/VisFly#9",
	 "    loss.backward()\n  File \"/x/torch/_tensor.py\", line 522, in backward\n    torch.autograd.backward(\n  File \"/x/torch/autograd/"
	 "__init__.py\", line 266, in backward\n    Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward "
	 "pass\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 244.00 MiB. GPU 0 has a total capacity of 7.73 GiB of which "
	 "228.50 MiB is free. Including non-PyTorch memory, this process has 6.59 GiB memory in use. Of the allocated memory 5.90 GiB is "
	 "allocated by PyTorch, and 469.82 MiB is reserved by PyTorch but unallocated." ADVICE2,
	 "torch", "244.00 MiB", "7.73 GiB", "228.50 MiB", "5.90 GiB", "469.82 MiB", 0, -1, OOM_CRASH_BACKWARD, OOM_CAUSE_TOO_LARGE},
	{"pytorch/pytorch#16417, IPython",
	 "<ipython-input-116> in <module>\n     28         landmarks = landmarks.view(landmarks.size(0),-1).cuda()\n     29 \n---> 30         "
	 "predictions = network(images)\n     31 \n\n~/torch/nn/modules/module.py in _call_impl(self, *input, **kwargs)\n    720             "
	 "result = self._slow_forward(*input, **kwargs)\n    721         else:\n--> 722             result = self.forward(*input, **kwargs)\n\n"
	 "<ipython-input-112> in forward(self, x)\n     14         x = x.float()\n---> 15         out = self.model(x)\n\nRuntimeError: CUDA out of "
	 "memory. Tried to allocate 76.00 MiB (GPU 0; 10.91 GiB total capacity; 9.80 GiB already allocated; 50.12 MiB free; 9.97 GiB reserved in "
	 "total by PyTorch)",
	 "torch", "76.00 MiB", "10.91 GiB", "50.12 MiB", "9.80 GiB", "9.97 GiB", 0, -1, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"speedinghzl/pytorch-segmentation-toolbox#54",
	 "Traceback (most recent call last):\n  File \"train.py\", line 251, in <module>\n    main()\n  File \"train.py\", line 228, in main\n    "
	 "loss.backward()\n  File \"/x/torch/tensor.py\", line 118, in backward\n    torch.autograd.backward(self, gradient, retain_graph, "
	 "create_graph)\nRuntimeError: CUDA out of memory. Tried to allocate 86.00 MiB (GPU 3; 11.75 GiB total capacity; 10.05 GiB already "
	 "allocated; 85.81 MiB free; 588.65 MiB cached)",
	 "torch", "86.00 MiB", "11.75 GiB", "85.81 MiB", "10.05 GiB", "588.65 MiB", 3, -1, OOM_CRASH_BACKWARD, OOM_CAUSE_TOO_LARGE},
	{"ShannonAI/Self_Explaining_Structures_Improve_NLP_Models#6, without its head",
	 "Tried to allocate 20.00 MiB (GPU 0; 1.96 GiB total capacity; 1.24 GiB already allocated; 2.88 MiB free; 1.25 GiB reserved in total by "
	 "PyTorch)",
	 "torch", "20.00 MiB", "1.96 GiB", "2.88 MiB", "1.24 GiB", "1.25 GiB", 0, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_TOO_LARGE},
	{"facebookresearch/detectron2#1563",
	 "[06/09 11:05:25 d2.engine.train_loop]: Exception during training:\nTraceback (most recent call last):\n  File \"/x/detectron2/engine/"
	 "train_loop.py\", line 132, in train\n    self.run_step()\n  File \"/x/detectron2/engine/train_loop.py\", line 228, in run_step\n    "
	 "losses.backward()\nRuntimeError: CUDA out of memory. Tried to allocate 1.71 GiB (GPU 0; 31.72 GiB total capacity; 23.58 GiB already "
	 "allocated; 1.58 GiB free; 29.08 GiB reserved in total by PyTorch)\n[06/09 11:05:25 d2.engine.hooks]: Overall training speed: 22 "
	 "iterations in 0:01:02\nTraceback (most recent call last):\n  File \"transfer.py\", line 418, in <module>\n    results = main()",
	 "torch", "1.71 GiB", "31.72 GiB", "1.58 GiB", "23.58 GiB", "29.08 GiB", 0, -1, OOM_CRASH_BACKWARD, OOM_CAUSE_FRAGMENTATION},
	{"pytorch/pytorch#18313",
	 "  File \"info.py\", line 409, in <module>\n    loss.backward()\n  File \"/x/torch/autograd/__init__.py\", line 90, in backward\n    "
	 "allow_unreachable=True)  # allow_unreachable flag\nRuntimeError: CUDA error: out of memory",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_BACKWARD, OOM_CAUSE_UNKNOWN},
	{"RenYurui/StructureFlow#35", "RuntimeError: CUDA out of memory. Tried to allocate 8.13 GiB (GPU 0; 10.76 GiB total capacity; 643.57 MiB already allocated; "
	 "8.20 GiB free; 32.43 MiB cached)",
	 "torch", "8.13 GiB", "10.76 GiB", "8.20 GiB", "643.57 MiB", "32.43 MiB", 0, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_TOO_LARGE},
	{"ROCm/TheRock#1054",
	 "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 15.24 GiB of which 15.09 GiB is "
	 "free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
	 "torch-rocm", "16.00 GiB", "15.24 GiB", "15.09 GiB", "0 bytes", "0 bytes", 0, -1, OOM_CRASH_UNKNOWN,
	 /* an APU with 96 GiB set aside (thread) */
	 OOM_CAUSE_WRONG_CAPACITY},
	{"huggingface/autotrain-advanced#737",
	 "  0%|  | 3/47840 [00:02<9:15:06,  1.44it/s]ERROR    | 2024-08-21 22:56:04 | autotrain.trainers.common:wrapper:121 - HIP out of memory. "
	 "Tried to allocate 124.00 MiB. GPU 0 has a total capacity of 19.94 GiB of which 554.47 MiB is free. Of the allocated memory 15.87 GiB is "
	 "allocated by PyTorch, and 165.29 MiB is reserved by PyTorch but unallocated.",
	 "torch-rocm", "124.00 MiB", "19.94 GiB", "554.47 MiB", "15.87 GiB", "165.29 MiB", 0, -1, OOM_CRASH_TRAIN_STEP, OOM_CAUSE_UNKNOWN},
	{"AMD-AGI/Primus#349",
	 "  torch.OutOfMemoryError: HIP out of memory. Tried to allocate 11.74 GiB. GPU 7 has a total capacity of 251.98 GiB of which 6.94 GiB is "
	 "free. Of the allocated memory 229.04 GiB is allocated by PyTorch, and 12.46 GiB is reserved by PyTorch but unallocated." ADVICE2
	 "\n\n----\nRoot Cause (first observed failure):\n[0]:\n  time      : 2025-12-11_14:23:35\n  rank      : 4 (local_rank: 4)\n  exitcode  : 1 "
	 "(pid: 206)\n  traceback : Traceback (most recent call last):\n    File \"/x/torchtitan/train.py\", line 512, in train_step\n      loss = "
	 "self.forward_backward_step(input_dict, labels)",
	 "torch-rocm", "11.74 GiB", "251.98 GiB", "6.94 GiB", "229.04 GiB", "12.46 GiB", 7, -1, OOM_CRASH_TRAIN_STEP, OOM_CAUSE_TOO_LARGE},
	{"intel/intel-extension-for-pytorch#629",
	 "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 6.85 GiB (GPU  0; 15.56 GiB "
	 "total capacity; 0 bytes already allocated; 0 bytes reserved in total by PyTorch)",
	 "torch-xpu", "6.85 GiB", "15.56 GiB", NO, "0 bytes", "0 bytes", 0, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_BUFFER_LIMIT},
	{"intel/intel-extension-for-pytorch#846",
	 "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 15.11 GiB. Of the allocated memory 0 "
	 "bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied "
	 "cached memory.",
	 "torch-xpu", "8.00 GiB", "15.11 GiB", NO, "0 bytes", "0 bytes", 0, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_BUFFER_LIMIT},
	{"intel/intel-xpu-backend-for-triton#7477",
	 "FAILED test_distributed.py::test_convert_large_strides[src-dp_to_ep] - torch.OutOfMemoryError: XPU out of memory. Tried to allocate 4.00 "
	 "GiB. GPU 0 has a total capacity of 15.11 GiB of which 15.11 GiB is free. Of the allocated memory 1024 bytes is allocated by PyTorch, and "
	 "2.00 MiB is reserved by PyTorch but unallocated.",
	 "torch-xpu", "4.00 GiB", "15.11 GiB", "15.11 GiB", "1024 bytes", "2.00 MiB", 0, -1, OOM_CRASH_TEST, OOM_CAUSE_BUFFER_LIMIT},
	{"jax-ml/jax#13428",
	 "    out_flat = compiled.execute(in_flat)\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
	 "6291456 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:    6.00MiB\n",
	 "jax", "6291456 bytes", NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_UNKNOWN},
	{"patrickbryant1/SpeedPPI#1",
	 "Traceback (most recent call last):\n  File \"./src/run_alphafold_all_vs_all.py\", line 269, in main\n    prediction_result = "
	 "model_runner.predict(processed_feature_dict)\n  File \"/x/alphafold/model/model.py\", line 133, in predict\n    result = "
	 "self.apply(self.params, jax.random.PRNGKey(0), feat)\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying "
	 "to allocate 9031036208 bytes.\nBufferAssignment OOM Debugging.",
	 "jax", "9031036208 bytes", NO, NO, NO, NO, -1, -1, OOM_CRASH_INFERENCE, OOM_CAUSE_UNKNOWN},
	{"google-research/t5x#870",
	 "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5100273664 bytes.\nBufferAssignment OOM "
	 "Debugging.\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 96.00MiB\n\t\tOperator: op_name=\"pjit(train_step)/jit(main)/jvp(Transformer)/"
	 "Transformer.encode/encoder/layers_3/attention\"\n",
	 "jax", "5100273664 bytes", NO, NO, NO, NO, -1, -1, OOM_CRASH_TRAIN_STEP, OOM_CAUSE_UNKNOWN},
	{"pcyin/tranX#41",
	 "[2059991.491436] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=python3,"
	 "pid=25315,uid=0\n[2059991.491542] Out of memory: Killed process 25315 (python3) total-vm:53312244kB, anon-rss:31451456kB, "
	 "file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0\n[2059992.056260] oom_reaper: reaped process 25315 (python3), "
	 "now anon-rss:0kB, file-rss:74732kB, shmem-rss:12296kB\n",
	 "host", NO, NO, NO, "anon-rss:31451456kB", NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_HOST_RAM},
	{"ArjunaCluster/ArjunaUsers#52",
	 "Epoch: [0][511/1736]\t Loss 0.5117 MAE 0.6075 RMSE 0.7153\n/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed                  "
	 "python3 main.py --epochs 400\n",
	 "host", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_TRAIN_STEP, OOM_CAUSE_HOST_RAM},
	{"brain-score/vision#950",
	 "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=37205392.0. Some of your processes may have been killed by the cgroup "
	 "out-of-memory handler.\nsrun: error: node107: task 0: Out Of Memory\n",
	 "host", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_HOST_RAM},
	{"kubeflow/kubeflow#1261", "The node was low on resource: memory.\nKilling container with id docker://notebook:Need to kill Pod\n",
	 "host", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_HOST_RAM},
	{"TorchSSL/TorchSSL#4", "RuntimeError: DataLoader worker (pid 12847) is killed by signal: Killed. ",
	 "host", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_DATA, OOM_CAUSE_HOST_RAM},
	{"deepspeedai/DeepSpeed#237",
	 "Traceback (most recent call last):\n  File \"pretrain_gpt2.py\", line 171, in setup_model_and_optimizer\n    dist_init_required=False\n  File "
	 "\"/x/deepspeed/__init__.py\", line 98, in initialize\n    config_params=config_params)\n  File \"/x/deepspeed/pt/deepspeed_light.py\", line "
	 "591, in _configure_zero_optimizer\n    mpu=self.mpu)\n  File \"/x/deepspeed_zero_optimizer.py\", line 333, in __init__\n    "
	 "self.initialize_optimizer_states()\n  File \"/x/torch/optim/adam.py\", line 93, in step\nRuntimeError: CUDA out of memory. Tried to allocate "
	 "9.31 GiB (GPU 2; 31.72 GiB total capacity; 28.01 GiB already allocated; 2.45 GiB free; 28.11 GiB reserved in total by PyTorch)",
	 "torch", "9.31 GiB", "31.72 GiB", "2.45 GiB", "28.01 GiB", "28.11 GiB", 2, -1, OOM_CRASH_INIT, OOM_CAUSE_TOO_LARGE},
	{"huggingface/transformers#17089",
	 "  File \"run_seq2seq_qa.py\", line 699, in main\n    metrics = trainer.evaluate(max_length=max_length)\n  File \"/x/transformers/trainer.py\", "
	 "line 2515, in evaluation_loop\n    preds_host = logits if preds_host is None else nested_concat(preds_host, logits, padding_index=-100)\n  "
	 "File \"/x/transformers/trainer_pt_utils.py\", line 97, in nested_concat\nRuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; "
	 "23.70 GiB total capacity; 17.31 GiB already allocated; 1.19 GiB free; 21.09 GiB reserved in total by PyTorch)",
	 "torch", "3.00 GiB", "23.70 GiB", "1.19 GiB", "17.31 GiB", "21.09 GiB", 0, -1, OOM_CRASH_EVAL, OOM_CAUSE_EVAL_LOGITS},
	{"ExplainableML/czsl#7",
	 "  File \"train.py\", line 193, in test\n    stats = evaluator.evaluate_predictions(results, all_attr_gt)\n  File \"/x/models/common.py\", line "
	 "489, in evaluate_predictions\n    results = self.score_fast_model(scores, obj_truth)\nRuntimeError: CUDA out of memory. Tried to allocate "
	 "4.18 GiB (GPU 0; 10.92 GiB total capacity; 4.68 GiB already allocated; 2.44 GiB free; 7.85 GiB reserved in total by PyTorch)",
	 "torch", "4.18 GiB", "10.92 GiB", "2.44 GiB", "4.68 GiB", "7.85 GiB", 0, -1, OOM_CRASH_EVAL, OOM_CAUSE_EVAL_LOGITS},
	{"modelscope/ms-swift#3399",
	 "  File \"/x/transformers/trainer.py\", line 3091, in _maybe_log_save_evaluate\n    metrics = self._evaluate(trial, ignore_keys_for_eval)\n  File "
	 "\"/x/transformers/trainer.py\", line 4327, in evaluation_loop\n    logits = self.accelerator.pad_across_processes(logits, dim=1, "
	 "pad_index=-100)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.11 GiB. GPU 1 has a total capacity of 23.64 GiB of which "
	 "3.02 GiB is free. Including non-PyTorch memory, this process has 20.61 GiB memory in use. Of the allocated memory 19.50 GiB is allocated by "
	 "PyTorch, and 632.10 MiB is reserved by PyTorch but unallocated." ADVICE2,
	 "torch", "8.11 GiB", "23.64 GiB", "3.02 GiB", "19.50 GiB", "632.10 MiB", 1, -1, OOM_CRASH_EVAL, OOM_CAUSE_EVAL_LOGITS},
	{"pharmapsychotic/clip-interrogator-ext#74",
	 "MPS backend out of memory (MPS allocated: 6.04 GB, other allocations: 1.04 GB, max allowed: 6.77 GB). Tried to allocate 459.07 MB on private "
	 "pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure)",
	 "torch-mps", "459.07 MB", "6.77 GB", NO, "6.04 GB", NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_TOO_LARGE},
	{"Comfy-Org/ComfyUI#11584",
	 "  File \"/x/ComfyUI/comfy/ldm/wan/model.py\", line 236, in forward\n    y = self.self_attn(\n  File \"/x/torch/nn/modules/module.py\", line "
	 "1766, in _call_impl\n    return forward_call(*args, **kwargs)\nRuntimeError: MPS backend out of memory (MPS allocated: 39.50 GiB, other "
	 "allocations: 141.24 GiB, max allowed: 182.78 GiB). Tried to allocate 2.34 GiB on private pool.",
	 "torch-mps", "2.34 GiB", "182.78 GiB", NO, "39.50 GiB", NO, -1, -1, OOM_CRASH_INFERENCE, OOM_CAUSE_TOO_LARGE},
	{"tensorflow/tensorflow#48456, eager",
	 "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[4,96,98,322] and type float on "
	 "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2DBackpropInput]",
	 "tensorflow", "shape[4,96,98,322] float", NO, NO, NO, NO, 0, -1, OOM_CRASH_BACKWARD, OOM_CAUSE_TOO_LARGE},
	{"tensorflow/tensorflow#279, the first release",
	 "tensorflow.python.framework.errors.ResourceExhaustedError: OOM when allocating tensor with shapedim { size: 10000 } dim { size: 14 } dim { size: "
	 "14 } dim { size: 64 }\n\t [[Node: Conv2D_1 = Conv2D[T=DT_FLOAT, padding=\"SAME\", _device=\"/job:localhost/replica:0/task:0/gpu:0\"](MaxPool, "
	 "Variable_4)]]\n",
	 "tensorflow", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"tensorflow/tensorflow#4735",
	 "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with shape[256,112,112,64]\n     [[Node: InceptionV1/Conv2d_1a_7x7/"
	 "BatchNorm/moments/SquaredDifference = SquaredDifference[T=DT_FLOAT]]]\n",
	 "tensorflow", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"ROCm/tensorflow-upstream#82, the pool asks for all it can get",
	 "2019-01-08 19:06:11.303639: E tensorflow/stream_executor/rocm/rocm_driver.cc:601] failed to allocate 7.35G (7889485824 bytes) from device: "
	 "hipError_t(1002)\n",
	 "tensorflow", "7889485824 bytes", NO, NO, NO, NO, -1, -1, OOM_CRASH_INIT, OOM_CAUSE_OTHER_PROCESS},
	{"vllm-project/vllm#14092",
	 "(VllmWorkerProcess pid=195295) ERROR 03-02 19:49:43 [multiproc_worker_utils.py:242] Traceback (most recent call last):\n(VllmWorkerProcess "
	 "pid=195295) ERROR 03-02 19:49:43 [multiproc_worker_utils.py:242]   File \"/x/vllm/worker/worker.py\", line 183, in load_model\n(VllmWorkerProcess "
	 "pid=195295) ERROR 03-02 19:49:43 [multiproc_worker_utils.py:242]   File \"/x/torch/utils/_device.py\", line 106, in __torch_function__\n"
	 "(VllmWorkerProcess pid=195295) ERROR 03-02 19:49:43 [multiproc_worker_utils.py:242]     return func(*args, **kwargs)\n(VllmWorkerProcess "
	 "pid=195295) ERROR 03-02 19:49:43 [multiproc_worker_utils.py:242] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 2 "
	 "has a total capacity of 14.62 GiB of which 3.31 MiB is free. Including non-PyTorch memory, this process has 14.61 GiB memory in use. Of the "
	 "allocated memory 14.42 GiB is allocated by PyTorch, and 23.14 MiB is reserved by PyTorch but unallocated." ADVICE2,
	 "torch", "20.00 MiB", "14.62 GiB", "3.31 MiB", "14.42 GiB", "23.14 MiB", 2, -1, OOM_CRASH_LOAD, OOM_CAUSE_TOO_LARGE},
	{"rhymes-ai/Aria#24, a container without the driver's numbers",
	 "(VllmWorkerProcess pid=2421) ERROR 10-14 12:32:47 multiproc_worker_utils.py:233] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.88 "
	 "GiB. GPU 3 has a total capacity of 21.96 GiB of which 1.29 GiB is free. Including non-PyTorch memory, this process has 0 bytes memory in use. Of "
	 "the allocated memory 19.02 GiB is allocated by PyTorch, and 1.32 GiB is reserved by PyTorch but unallocated." ADVICE2,
	 "torch", "1.88 GiB", "21.96 GiB", "1.29 GiB", "19.02 GiB", "1.32 GiB", 3, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_TOO_LARGE},
	{"NVIDIA/nccl#1235",
	 "ng30903:3063028:3066152 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n\nng30903:3063028:3066152 [3] include/alloc.h:185 NCCL WARN "
	 "Failed to CUDA calloc 6291456 bytes\n",
	 "nccl", "6291456 bytes", NO, NO, NO, NO, -1, -1, OOM_CRASH_COLLECTIVE, OOM_CAUSE_TOO_LARGE},
	{"microsoft/onnxruntime#20038",
	 "onnx runtime error 6: Non-zero status code returned while running Mul node. Name:'Mul_8702' Status Message: /workspace/onnxruntime/onnxruntime/core/"
	 "framework/bfc_arena.cc:368 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size "
	 "2830172160",
	 "onnxruntime", "2830172160", NO, NO, NO, NO, -1, -1, OOM_CRASH_INFERENCE, OOM_CAUSE_UNKNOWN},
	{"pytorch/pytorch#121899, the driver's library missing",
	 "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at \"/x/c10/cuda/CUDACachingAllocator.cpp\":830, please report a bug to PyTorch. ",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_UNKNOWN},
	{"NVIDIA/cudf#6746",
	 "MemoryError: std::bad_alloc: CUDA error at: ../include/rmm/mr/device/cuda_memory_resource.hpp:68: cudaErrorMemoryAllocation out of memory",
	 "rmm", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_UNKNOWN},
	{"lm-sys/FastChat#256",
	 "{'loss': 1.317, 'learning_rate': 0.0, 'epoch': 1.0}\n/x/torch/distributed/fsdp/_state_dict_utils.py:312: UserWarning: Failed to clone() tensor with "
	 "name lm_head.weight on rank 1. This may mean that this state_dict entry could point to invalid memory regions after returning from state_dict() "
	 "call. Error: CUDA out of memory. Tried to allocate 270.00 MiB (GPU 1; 79.35 GiB total capacity; 76.93 GiB already allocated; 72.19 MiB free; 77.38 "
	 "GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
	 "torch", "270.00 MiB", "79.35 GiB", "72.19 MiB", "76.93 GiB", "77.38 GiB", 1, -1, OOM_CRASH_SAVE, OOM_CAUSE_TOO_LARGE},
	{"ByteDance-Seed/Bagel#157",
	 "[rank7]: Traceback (most recent call last):\n[rank7]:   File \"/x/pretrain_unified_navit.py\", line 729, in main\n[rank7]:     "
	 "FSDPCheckpoint.fsdp_save_ckpt(\n[rank7]:   File \"/x/train/fsdp_utils.py\", line 109, in fsdp_save_ckpt\n[rank7]:     ema_state_dict = "
	 "ema_model.state_dict()\n[rank7]:   File \"/x/torch/distributed/fsdp/_state_dict_utils.py\", line 303, in _full_pre_state_dict_hook\n[rank7]: "
	 "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 27.13 GiB. GPU 7 has a total capacity of 79.15 GiB of which 12.04 GiB is free. "
	 "Including non-PyTorch memory, this process has 67.10 GiB memory in use. Of the allocated memory 60.02 GiB is allocated by PyTorch, and 5.50 GiB is "
	 "reserved by PyTorch but unallocated." ADVICE2,
	 "torch", "27.13 GiB", "79.15 GiB", "12.04 GiB", "60.02 GiB", "5.50 GiB", 7, 7, OOM_CRASH_SAVE, OOM_CAUSE_TOO_LARGE},
	{"jianzhnie/LLamaTuner#91, two ranks interleaved",
	 "    w_4bit, quant_state = bnb.functional.quantize_4bit(w, blocksize=self.blocksize)\n  File \"/x/bitsandbytes/functional.py\", line 760, in "
	 "quantize_4bit\nTraceback (most recent call last):\n  File \"/x/finetune_llama_with_qlora.py\", line 72, in <module>\n    out = "
	 "torch.zeros(((n+1)//2, 1), dtype=torch.uint8, device=A.device)\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB (GPU "
	 "0; 39.45 GiB total capacity; 4.00 GiB already allocated; 95.25 MiB free; 4.04 GiB reserved in total by PyTorch) If reserved memory is >> allocated "
	 "memory try setting max_split_size_mb to avoid fragmentation.\n    model = AutoModelForCausalLM.from_pretrained(\n",
	 "torch", "112.00 MiB", "39.45 GiB", "95.25 MiB", "4.00 GiB", "4.04 GiB", 0, -1, OOM_CRASH_LOAD, OOM_CAUSE_OTHER_PROCESS},
	{"bitsandbytes-foundation/bitsandbytes#477",
	 "  0%|   | 0/10000 [00:00<?, ?it/s]Traceback (most recent call last):\n  File \"/x/qlora.py\", line 729, in train\n    train_result = trainer.train("
	 "resume_from_checkpoint=checkpoint_dir)\n  File \"/x/transformers/trainer.py\", line 2787, in training_step\n    loss = self.compute_loss(model, "
	 "inputs)\n  File \"/x/torch/nn/modules/module.py\", line 1501, in _call_impl\n    return forward_call(*args, **kwargs)\ntorch.cuda."
	 "OutOfMemoryError: CUDA out of memory. Tried to allocate 344.00 MiB (GPU 0; 23.69 GiB total capacity; 21.30 GiB already allocated; 153.81 MiB "
	 "free; 22.51 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb",
	 "torch", "344.00 MiB", "23.69 GiB", "153.81 MiB", "21.30 GiB", "22.51 GiB", 0, -1, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"huggingface/lora-fast#1",
	 "  File \"/x/torch/nn/modules/module.py\", line 942, in _apply\n    param_applied = fn(param)\n                    ^^^^^^^^^\n  File "
	 "\"/x/torch/nn/modules/module.py\", line 1341, in convert\n    return t.to(\n           ^^^^^\ntorch.OutOfMemoryError: CUDA out of memory. Tried to "
	 "allocate 90.00 MiB. GPU 0 has a total capacity of 23.55 GiB of which 45.75 MiB is free. Including non-PyTorch memory, this process has 23.48 GiB "
	 "memory in use. Of the allocated memory 22.72 GiB is allocated by PyTorch, and 257.71 MiB is reserved by PyTorch but unallocated." ADVICE2,
	 "torch", "90.00 MiB", "23.55 GiB", "45.75 MiB", "22.72 GiB", "257.71 MiB", 0, -1, OOM_CRASH_TO_DEVICE, OOM_CAUSE_TOO_LARGE},
	{"meta-llama/llama-cookbook#320",
	 "  File \"/x/train_utils.py\", line 104, in train\n    loss.backward()\n  File \"/x/torch/_tensor.py\", line 492, in backward\n    "
	 "torch.autograd.backward(\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.08 GiB. GPU 0 has a total capacty of 22.20 GiB of "
	 "which 687.12 MiB is free. Process 40666 has 21.53 GiB memory in use. Of the allocated memory 9.71 GiB is allocated by PyTorch, and 10.61 GiB is "
	 "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.",
	 "torch", "10.08 GiB", "22.20 GiB", "687.12 MiB", "9.71 GiB", "10.61 GiB", 0, -1, OOM_CRASH_BACKWARD, OOM_CAUSE_FRAGMENTATION},
	{"pytorch/pytorch#138002, a banner before the frames",
	 "!!! Exception during processing !!! HIP out of memory. Tried to allocate 6.64 GiB. GPU 0 has a total capacity of 19.92 GiB of which 6.22 GiB is "
	 "free. Of the allocated memory 5.34 GiB is allocated by PyTorch, and 7.10 GiB is reserved by PyTorch but unallocated.\nTraceback (most recent call "
	 "last):\n  File \"/x/ComfyUI/execution.py\", line 323, in execute\n    output_data, output_ui, has_subgraph = get_output_data(obj)\n",
	 "torch-rocm", "6.64 GiB", "19.92 GiB", "6.22 GiB", "5.34 GiB", "7.10 GiB", 0, -1, OOM_CRASH_INFERENCE, OOM_CAUSE_FRAGMENTATION},
	{"ROCm/TheRock#2118",
	 "2025-11-12T11:25:13.4961658Z FAILED [0.0005s] external-builds/pytorch/pytorch/test/test_autograd.py::TestAutogradDeviceTypeCUDA::"
	 "test_inplace_on_view_cuda - torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 255.98 GiB of which "
	 "244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated by PyTorch, with 17.00 MiB allocated in private pools (e.g., "
	 "HIP Graphs), and 54.99 MiB is reserved by PyTorch but unallocated.",
	 "torch-rocm", "2.00 MiB", "255.98 GiB", "244.65 GiB", "1017.01 MiB", "54.99 MiB", 0, -1, OOM_CRASH_TEST, OOM_CAUSE_FRACTION_CAP},
	{"bmaltais/kohya_ss#477",
	 "running training\nsteps:   0%|  | 0/1500 [00:00<?, ?it/s]epoch 1/30\nTraceback (most recent call last):\n  File \"D:\\x\\train_network.py\", line "
	 "538, in train\n    noise_pred = unet(noisy_latents, timesteps, encoder_hidden_states).sample\n  File \"D:\\x\\torch\\nn\\modules\\module.py\", line "
	 "1130, in _call_impl\n    return forward_call(*input, **kwargs)\nRuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 24.00 GiB total "
	 "capacity; 7.21 GiB already allocated; 13.12 GiB free; 8.01 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
	 "max_split_size_mb",
	 "torch", "1.50 GiB", "24.00 GiB", "13.12 GiB", "7.21 GiB", "8.01 GiB", 0, -1, OOM_CRASH_FORWARD, OOM_CAUSE_UNKNOWN},
	{"flwrlabs/flower#2157",
	 "(raylet) [2023-07-23 15:21:29,851 E 9751 9751] (raylet) node_manager.cc:3084: 4 Workers (tasks / actors) killed due to memory pressure (OOM), 0 "
	 "Workers crashed due to other reasons at node (ID: b287aac2, IP: 172.28.0.12) over the last time period.",
	 "host", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_HOST_RAM},
	{"hiyouga/LlamaFactory#5491",
	 "  File \"/x/transformers/modeling_utils.py\", line 936, in _load_state_dict_into_meta_model\n    set_module_tensor_to_device(model, param_name, "
	 "param_device)\n  File \"/x/accelerate/utils/modeling.py\", line 400, in set_module_tensor_to_device\n    new_value = value.to(device)\nRuntimeError: "
	 "NPU out of memory. Tried to allocate 386.00 MiB (NPU 2; 60.97 GiB total capacity; 59.57 GiB already allocated; 59.57 GiB current active; 16.54 MiB "
	 "free; 60.06 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
	 "torch-npu", "386.00 MiB", "60.97 GiB", "16.54 MiB", "59.57 GiB", "60.06 GiB", 2, -1, OOM_CRASH_LOAD, OOM_CAUSE_TOO_LARGE},
	{"dropreg/R-Drop#9",
	 "2021-08-02 18:54:21 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of memory. Tried to allocate 68.00 MiB (GPU 0; "
	 "15.90 GiB total capacity; 14.76 GiB already allocated; 55.75 MiB free; 14.88 GiB reserved in total by PyTorch)\n2021-08-02 18:54:21 | WARNING | "
	 "fairseq.trainer | |====|\n|                  PyTorch CUDA memory summary, device ID 0                 |\n|            CUDA OOMs: 1            |        "
	 "cudaMalloc retries: 3         |\n",
	 "torch", "68.00 MiB", "15.90 GiB", "55.75 MiB", "14.76 GiB", "14.88 GiB", 0, -1, OOM_CRASH_TRAIN_STEP, OOM_CAUSE_TOO_LARGE},
	{"facebookresearch/fairseq#4352, wrapped by a terminal",
	 "| WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of memory. Tried to allocate 3.02 GiB (GPU 1; 23.70 GiB total "
	 "capacity; \n16.92 GiB already allocated; 1019.69 MiB free; 21.03 GiB reserved in total by \nPyTorch)                     \n",
	 "torch", "3.02 GiB", "23.70 GiB", "1019.69 MiB", "16.92 GiB", "21.03 GiB", 1, -1, OOM_CRASH_TRAIN_STEP, OOM_CAUSE_FRAGMENTATION},
	{"pytorch/pytorch#18853",
	 "  File \"/x/torch/nn/functional.py\", line 840, in threshold\n    result = _VF.threshold(input, threshold, value)\nRuntimeError: CUDA out of memory. "
	 "Tried to allocate 1024.00 MiB (GPU 0; 15.90 GiB total capacity; 14.25 GiB already allocated; 991.56 MiB free; 607.00 KiB cached)\n\nDuring handling of "
	 "the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"memtestcase.py\", line 78, in fwbw\n    yhat = "
	 "model(X)\n  File \"/x/torch/nn/parallel/distributed.py\", line 355, in forward\n    self._sync_params()\n",
	 "torch", "1024.00 MiB", "15.90 GiB", "991.56 MiB", "14.25 GiB", "607.00 KiB", 0, -1, OOM_CRASH_FORWARD, OOM_CAUSE_TOO_LARGE},
	{"theislab/single-cell-tutorial#85", "numpy.core._exceptions.MemoryError: Unable to allocate 926. GiB for an array with shape (6794880, 36601) and data type float32",
	 "host", "926. GiB", NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_HOST_RAM},
	{"numpy/numpy#13306, before the size was printed", "numpy.core._exceptions.MemoryError: Unable to allocate array with shape (9681, 9681) and data type float64",
	 "host", "shape(9681, 9681) float64", NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_HOST_RAM},
	{"NVIDIA/nccl#1284", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_NOT_OOM},
	{"pytorch/pytorch#465",
	 "THCudaCheck FAIL file=/x/torch/lib/THC/generic/THCStorage.cu line=66 error=2 : out of memory\nTraceback (most recent call last):\n  File "
	 "\"main_snli.py\", line 74, in __init__\n    self.model.cuda()\n  File \"/x/torch/nn/modules/module.py\", line 143, in cuda\n    return self._apply("
	 "lambda t: t.cuda(device_id))\nRuntimeError: cuda runtime error (2) : out of memory at /x/torch/lib/THC/generic/THCStorage.cu:66",
	 "torch", NO, NO, NO, NO, NO, -1, -1, OOM_CRASH_TO_DEVICE, OOM_CAUSE_TOO_LARGE},
	{"ray-project/ray#32730",
	 "Memory on the node (IP: 172.31.237.1, ID: 2c0ca846) where the task (task ID: 76b2551f, name=pi4_sample, pid=664672, memory used=0.05GB) was running "
	 "was 219.41GB / 230.40GB (0.952289), which exceeds the memory usage threshold of 0.95. Ray killed this worker because it was the most recently "
	 "scheduled task;",
	 "host", NO, "230.40GB", NO, "219.41GB", NO, -1, -1, OOM_CRASH_UNKNOWN, OOM_CAUSE_HOST_RAM},
};

static void test_threads(void **state)
{
	(void)state;
	check_threads(threads, sizeof(threads) / sizeof(threads[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
