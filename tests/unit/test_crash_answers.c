/* Crashes in our own words, after forms met in public threads of 2023 to 2026 (named per row), with what an
 * expert reads from them: part of the run, what the memory was for, cause, program, work, and a word that one
 * of the first four things to do must hold, and one that none may.
 *
 * Expectations were written before the decoder saw the text the row is after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define TRAINING "gradient_accumulation"
#define CUDA "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.50 GiB of which " \
	     "512.00 MiB is free. Of the allocated memory 22.50 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"

static const struct {
	const char *after, *text;
	enum oom_crash_phase phase;
	enum oom_crash_part part;
	enum oom_cause cause;
	const char *program;
	enum oom_crash_work work;
	const char *first, *never;      /* NULL: not asked */
} want[] = {
	/* a program that only infers loads its model where it makes it; a library's wrapper of the forward pass makes
	 * fp32 of the logits; the program whose banner stands above; a monitor's thread */
	{"chidiwilliams/buzz#439", "Traceback (most recent call last):\n" AT("app/scribe.py", "scribe_fast", "model = WhisperModel(name)")
				   AT("faster_whisper/transcribe.py", "__init__", "self.model = ctranslate2.models.Whisper(")
				   "RuntimeError: CUDA failed with error out of memory\n",
	 OOM_CRASH_LOAD, OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "whisper", OOM_WORK_LOADING, "int8_float16", "CUDA graphs"},
	{"unslothai/unsloth#465", "==((====))==  Unsloth\nTraceback (most recent call last):\n" AT("sft.py", "<module>", "trainer.train()")
				  AT("site-packages/accelerate/utils/operations.py", "_convert_to_fp32", "return tensor.float()") CUDA,
	 OOM_CRASH_FORWARD, OOM_PART_LOGITS, OOM_CAUSE_TOO_LARGE, "unsloth", OOM_WORK_TRAINING, NULL, NULL},
	{"lllyasviel/stable-diffusion-webui-forge#2524", "[Unload] Trying to free 2048.00 MB for cuda:0 with 1 models keep loaded ... Done.\n"
							 "Exception in thread MemMon:\nTraceback (most recent call last):\n"
							 AT("modules/memmon.py", "run", "free, total = self.cuda_mem_get_info()")
							 "RuntimeError: CUDA error: out of memory\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "webui", OOM_WORK_INFERENCE, "--medvram", TRAINING},
	/* the call of the innermost line; a kernel's launch is no set-up; advice is no word about the run */
	{"neka-nat/cupoch#98", "Traceback (most recent call last):\n" AT("show.py", "<module>", "clouds.initialize_allocator(pool)")
			       "MemoryError: std::bad_alloc: RMM failure at:/r/pool_memory_resource.hpp:190: Maximum pool size exceeded\n",
	 OOM_CRASH_INIT, OOM_PART_UNKNOWN, OOM_CAUSE_FRACTION_CAP, "", OOM_WORK_SETUP, "maximum_pool_size", TRAINING},
	{"pytorch/helion#470", AT("site-packages/triton/compiler/compiler.py", "_init_handles", "raise OutOfResources(need, most, what)")
			       "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_NOT_OOM, "", OOM_WORK_UNKNOWN, "num_stages", TRAINING},
	{"PaddlePaddle/PaddleOCR#1505", "Out of memory error on GPU 0. Cannot allocate 25.5MB memory on GPU 0, available memory is only 15.0MB.\n"
					"2. If no, please decrease the batch size of your model.\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, NULL, "stage 2/3"},
	/* phases by the line's verb, and by what a line says is over */
	{"vllm-project/vllm#7593", "(VllmWorkerProcess pid=3) INFO 08-19 07:51:12 model_runner.py:1024] Capturing the model for CUDA graphs.\n"
				   "(VllmWorkerProcess pid=3) ERROR 08-19 07:51:20 utils.py:2] torch.OutOfMemoryError: CUDA out of memory.\n",
	 OOM_CRASH_INIT, OOM_PART_GRAPHS, OOM_CAUSE_TOO_LARGE, "vllm", OOM_WORK_SERVER_SETUP, "gpu_memory_utilization", TRAINING},
	{"sgl-project/sglang#10741", "[2025-09-22 10:25:22 TP0] Capture cuda graph begin. avail mem=8.73 GB\n"
				     "[2025-09-22 10:25:30 TP0] Scheduler hit an exception: torch.OutOfMemoryError: CUDA out of memory.\n",
	 OOM_CRASH_INIT, OOM_PART_GRAPHS, OOM_CAUSE_TOO_LARGE, "sglang", OOM_WORK_SERVER_SETUP, "--mem-fraction-static", TRAINING},
	{"meta-llama/llama-models#334", "> initializing pipeline with size 1\nLoading a checkpoint (shards=8)\nModel args:\n"
					"E0429 3 api.py:874] failed (exitcode: -9) local_rank: 0 (pid: 21) of binary: /usr/bin/python3\n",
	 OOM_CRASH_LOAD, OOM_PART_UNKNOWN, OOM_CAUSE_HOST_RAM, "", OOM_WORK_LOADING, "second copy", TRAINING},
	{"ddalcu/mlx-serve#321", "Loading model.safetensors...\nLoaded 1324 weights\n[METAL] Command buffer execution failed: Insufficient Memory\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, NULL, "optim"},
	/* ggml's requesting function */
	{"ikawrakow/ik_llama.cpp#749", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory\n"
				       "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 9437184000\n",
	 OOM_CRASH_INIT, OOM_PART_SCRATCH, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_SERVER_SETUP, "-ub lower", TRAINING},
	{"ggml-org/llama.cpp#7366", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB on device 2: cudaMalloc failed: out of memory\n"
				    "alloc_tensor_range: failed to allocate CUDA2 buffer of size 943718400\nllama_model_load: error loading model\n",
	 OOM_CRASH_LOAD, OOM_PART_WEIGHTS, OOM_CAUSE_TOO_LARGE, "llama.cpp", OOM_WORK_LOADING, "-ngl", TRAINING},
	{"ggml-org/llama.cpp#18160", "ggml_vulkan: Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory\n"
				     "ggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 8753520640\n",
	 OOM_CRASH_INIT, OOM_PART_SCRATCH, OOM_CAUSE_BUFFER_LIMIT, "", OOM_WORK_SERVER_SETUP, "-ub", TRAINING},
	/* an evaluation deeper than its training; a server's loop; a warm-up around a generation */
	{"openseg-group/openseg.pytorch#41", AT("seg/trainer.py", "train", "self.__train()") AT("seg/trainer.py", "__val", "outputs = self.net(*inputs)")
					     AT("torch/nn/modules/module.py", "__call__", "result = self.forward(*input)")
					     AT("seg/base.py", "forward", "x = self.scale * x") CUDA,
	 OOM_CRASH_EVAL, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_EVAL, "evaluation batch", TRAINING},
	{"noonghunna/club-3090#58", "(EngineCore pid=104)   File \"/v/vllm/v1/engine/core.py\", line 1170, in run_busy_loop\n"
				    "(EngineCore pid=104)     self._process_engine_step()\n(EngineCore pid=104) " CUDA,
	 OOM_CRASH_INFERENCE, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "vllm", OOM_WORK_INFERENCE, "gpu_memory_utilization", TRAINING},
	{"huggingface/text-generation-inference#1769", AT("/o/text_generation_server/models/flash.py", "warmup", "_, batch, _ = self.generate_token(batch)")
						       AT("/o/text_generation_server/models/flash.py", "generate_token", "out = self.forward(batch)") CUDA,
	 OOM_CRASH_INIT, OOM_PART_WARMUP, OOM_CAUSE_TOO_LARGE, "tgi", OOM_WORK_SERVER_SETUP, "--max-batch-prefill-tokens", TRAINING},
	/* a forward pass that nobody calls a training */
	{"QwenLM/Qwen3#873", AT("lib/torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)") CUDA, OOM_CRASH_FORWARD,
	 OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, "if it was training", NULL},
	/* what the memory was for */
	{"pytorch/pytorch#123070", AT("enc.py", "forward", "y = self.att(x, x, x)")
				   AT("lib/torch/nn/functional.py", "_canonical_mask", "torch.zeros_like(mask, dtype=t)") CUDA,
	 OOM_CRASH_FORWARD, OOM_PART_SCORES, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, "full score matrix", NULL},
	{"verl-project/verl#2828", AT("/verl/workers/actor/dp_actor.py", "compute_log_prob", "e, l = self._forward_micro_batch(mb)")
				   AT("/verl/utils/torch_functional.py", "entropy_from_logits", "e = torch.logsumexp(logits, dim=-1)") CUDA,
	 OOM_CRASH_FORWARD, OOM_PART_LOGITS, OOM_CAUSE_TOO_LARGE, "verl", OOM_WORK_TRAINING, "log_prob_micro_batch_size_per_gpu", "torch.autocast(\"mps\")"},
	{"Vaibhavs10/insanely-fast-whisper#140", AT("/l/transformers/generation/utils.py", "generate", "out = self(**inputs)")
						 AT("/l/transformers/models/m.py", "forward", "k = torch.cat([past_key_value[0], k], dim=2)") CUDA,
	 OOM_CRASH_INFERENCE, OOM_PART_KV, OOM_CAUSE_TOO_LARGE, "generate", OOM_WORK_INFERENCE, "cache_implementation", TRAINING},
	{"huggingface/trl#2776", AT("/l/torch/optim/adamw.py", "_multi_tensor_adamw", "torch._foreach_sqrt(exp_avg_sqs)") CUDA, OOM_CRASH_OPTIMIZER,
	 OOM_PART_TEMPORARIES, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_TRAINING, "8-bit", NULL},
	/* limits, codes and arrays of the host */
	{"kubernetes/kubernetes#122256", "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:       137\n", OOM_CRASH_UNKNOWN,
	 OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "", OOM_WORK_UNKNOWN, NULL, "resources.limits.memory"},
	{"theislab/single-cell-tutorial#85", "numpy.core._exceptions.MemoryError: Unable to allocate 926. GiB for an array with shape (6794880, 36601) and data type float32\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_HOST_RAM, "", OOM_WORK_UNKNOWN, "sparse", TRAINING},
	{"intel/intel-extension-for-pytorch#846", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 15.11 GiB. Of the allocated "
						  "memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_BUFFER_LIMIT, "", OOM_WORK_UNKNOWN, "one allocation may not pass", NULL},
	{"vllm-project/vllm#8318", "RuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space smem. Used 1.00M of 1.00M smem.\n",
	 OOM_CRASH_COMPILE, OOM_PART_UNKNOWN, OOM_CAUSE_NOT_OOM, "", OOM_WORK_COMPILING, "smaller blocks", TRAINING},
	{"NVIDIA/TensorRT#4254", "[E] [virtualMemoryBuffer.cpp::resizePhysical::154] Error Code 2: OutOfMemory (Requested size was 16581132288 bytes.)\n",
	 OOM_CRASH_COMPILE, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_COMPILING, "workspace", TRAINING},
	{"Comfy-Org/ComfyUI#7171", "MPS backend out of memory (MPS allocated: 16.91 GB, other allocations: 2.77 MB, max allowed: 18.13 GB). Tried to allocate 1.28 GB on private pool.\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, "PYTORCH_MPS_HIGH_WATERMARK_RATIO", NULL},
	/* programs: of what is built on another, the upper; of what infers, its training's own words */
	{"unslothai/unsloth#3373", "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1\nTraceback (most recent call last):\n"
				   AT("/l/transformers/trainer.py", "train", "return inner_training_loop(") "OutOfMemoryError: CUDA out of memory.\n",
	 OOM_CRASH_TRAIN_STEP, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "unsloth", OOM_WORK_TRAINING, "use_gradient_checkpointing", NULL},
	{"d8ahazard/sd_dreambooth_extension#657", AT("/h/stable-diffusion-webui/venv/torch/autograd/__init__.py", "backward", "engine.run_backward(") CUDA,
	 OOM_CRASH_BACKWARD, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "webui", OOM_WORK_TRAINING, "--gradient_checkpointing", "cross-entropy"},
	{"davabase/whisper_real_time#8", AT("demo.py", "main", "m = whisper.load_model(name)")
					 AT("/l/whisper/__init__.py", "load_model", "return model.to(device)") CUDA,
	 OOM_CRASH_LOAD, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "whisper", OOM_WORK_LOADING, "a smaller model", "from_pretrained"},
	{"casper-hansen/AutoAWQ#423", AT("/l/awq/quantize/quantizer.py", "quantize", "].to(common_device)") CUDA, OOM_CRASH_INFERENCE, OOM_PART_UNKNOWN,
	 OOM_CAUSE_TOO_LARGE, "quantiser", OOM_WORK_INFERENCE, "samples", TRAINING},
	/* the allocator of an engine that sleeps beside a trainer; a TPU's compiler; one that names its program's total;
	 * a size that went wrong; more free than was asked for; a Rust program's weights; Thrust; a state dict that is
	 * gathered at the end; joined outputs without the frame above; what failed, by its name; queries against keys */
	{"modelscope/ms-swift#7324", "RuntimeError: CUDA Error: out of memory at /w/csrc/cumem_allocator.cpp:62\nswift rlhf --rlhf_type grpo --use_vllm true\n",
	 OOM_CRASH_INIT, OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "swift", OOM_WORK_SETUP, "vllm_gpu_memory_utilization", "gradient_checkpointing"},
	{"openxla.org error 1000", "XlaRuntimeError: RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 24.50G, SparseCore Hbm usage 80.25G, exceeding available bytes: 95.00G\n",
	 OOM_CRASH_COMPILE, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_COMPILING, "remat", "nvidia-smi"},
	{"jax-ml/jax#13428", "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5242880 bytes.\nBufferAssignment OOM Debugging.\n"
			     "             parameter allocation:    5.00MiB\n                 total allocation:   10.00MiB\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_OTHER_PROCESS, "", OOM_WORK_UNKNOWN, "nvidia-smi", "batch"},
	{"microsoft/onnxruntime#22702", "RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. onnxruntime::BFCArena::AllocateRawInternal "
					"Failed to allocate memory for requested buffer of size 3985490524328388608\n",
	 OOM_CRASH_INFERENCE, OOM_PART_MAPS, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_INFERENCE, "shape or count", "smaller inputs"},
	{"dmlc/xgboost#7140", "xgboost.core.XGBoostError: device_helpers.cuh:414: Memory allocation error on worker 0: std::bad_alloc: "
			      "cudaErrorMemoryAllocation: out of memory\n- Free memory: 9310923776\n- Requested memory: 51200\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "", OOM_WORK_UNKNOWN, NULL, "torch.utils.checkpoint"},
	{"huggingface/candle#2631", "Error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")\n   0: candle_core::error::Error::bt\n"
				    "   7: candle_nn::var_builder::VarBuilderArgs<B>::get_with_hints_dtype\n",
	 OOM_CRASH_LOAD, OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "", OOM_WORK_LOADING, "16 bits", "device_map"},
	{"rapidsai/rmm#130", "terminate called after throwing an instance of 'thrust::system::system_error'\n  what():  parallel_for failed: out of memory\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "", OOM_WORK_UNKNOWN, "nvidia-smi", "map_location"},
	{"tatsu-lab/stanford_alpaca#65", "    {'train_runtime': 1162.7, 'train_samples_per_second': 10.0, 'train_steps_per_second': 0.1, 'epoch': 1.0}\n"
					 "    /l/torch/distributed/fsdp/fully_sharded_data_parallel.py:2224:\n    UserWarning: Failed to clone() tensor with name a.b. This may mean that this state_dict entry could point to invalid memory "
					 "after\n    state_dict() call if this parameter is managed by FSDP.\n    Error: " CUDA,
	 OOM_CRASH_SAVE, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "fsdp", OOM_WORK_SAVING, "offload_to_cpu", TRAINING},
	{"huggingface/transformers#26702", "[/usr/lib/python3.10/site-packages/transformers/trainer_pt_utils.py](https://localhost:8080/#) in torch_pad_and_concatenate(tensor1, tensor2)\n"
					   "     87     # now fill\n---> 88     result = tensor1.new_full(new_shape, padding_index)\n     89     result[0] = 1\n\n" CUDA,
	 OOM_CRASH_EVAL, OOM_PART_UNKNOWN, OOM_CAUSE_EVAL_LOGITS, "trainer", OOM_WORK_EVAL, "outputs go to the host", TRAINING},
	{"a notebook's log", "9.1s 12 WARNING Bridge: generation error: " CUDA,
	 OOM_CRASH_INFERENCE, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_INFERENCE, NULL, TRAINING},
	{"a bug report", "File \".../train.py\", line 5, in train\n    m = self.training_step(batch)\nFile \".../attention.py\", line 13, in forward\n"
			 "    sim = torch.einsum(\"b i d, b j d -> b i j\", q, k) * self.scale\n" CUDA,
	 OOM_CRASH_FORWARD, OOM_PART_SCORES, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_TRAINING, "score matrix", NULL},
	/* what the command sets is not advised; adapters have no states to speak of */
	{"xichen-fy/Fira#3", CUDA "python tune.py --micro_batch_size 4 --adapter_name lora --use_gradient_checkpointing --num_epochs 1\n",
	    OOM_CRASH_TRAIN_STEP,
	 OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_TRAINING, "halve the micro-batch", "torch.utils.checkpoint"},
	{"ggml-org/llama.cpp#26297", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 40960.00 MiB on device 1: cudaMalloc failed: out of memory\n"
				     "graph_reserve: failed to allocate compute buffers\nllama-server -c 32768 --flash-attn on -ub 1024 --cache-type-k "
				         "q8_0\n",
	 OOM_CRASH_INIT, OOM_PART_SCRATCH, OOM_CAUSE_TOO_LARGE, "llama.cpp", OOM_WORK_SERVER_SETUP, "-ub 1024 -> 512", "-ctk"},
	/* no expandable segments on Windows, and in an old PyTorch */
	{"lllyasviel/stable-diffusion-webui-forge#1137", "Traceback (most recent call last):\n" AT("C:\\x\\deep.py", "f", "y = net(x)")
							"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total "
							    "capacity of 15.99 GiB of which "
							"0 bytes is free. Of the allocated memory 9.90 GiB is allocated by PyTorch, and 5.20 GiB is reserved "
							    "by PyTorch but unallocated.\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_FRAGMENTATION, "", OOM_WORK_UNKNOWN, "max_split_size_mb", "=expandable_segments"},
	{"NVIDIA/Megatron-LM#60", AT("train.py", "train_step", "loss.backward()")
				  "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 31.72 GiB total capacity; 20.00 GiB already "
				      "allocated; 1.50 GiB free; 29.00 GiB reserved in total by PyTorch)\n",
	 OOM_CRASH_BACKWARD, OOM_PART_UNKNOWN, OOM_CAUSE_FRAGMENTATION, "", OOM_WORK_TRAINING, "max_split_size_mb", NULL},
	/* counters beyond the card: an engine that sleeps */
	{"EasyR1#9", AT("fsdp_workers.py", "update_actor", "loss.backward()")
		     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.90 GiB is "
		         "free. Including non-PyTorch memory, "
		     "this process has 77.10 GiB memory in use. Of the allocated memory 82.00 GiB is allocated by PyTorch, and 28.00 GiB is reserved by "
		         "PyTorch but unallocated.\n"
		     "wandb:  actor/entropy_loss\n",
	 OOM_CRASH_BACKWARD, OOM_PART_ENGINE, OOM_CAUSE_TOO_LARGE, "verl", OOM_WORK_TRAINING, "rollout.gpu_memory_utilization", "expandable_segments"},
	/* a pool of next to nothing: somebody else's card */
	{"rstudio/keras3#461", "Limit:                     9437184\nInUse:                     8388608\n"
			       "W op_kernel.cc:1295] OP_REQUIRES failed at constant_op.cc:75 : Resource exhausted: OOM when allocating tensor of shape "
			           "[1,300,400,3] and type float\n",
	 OOM_CRASH_FORWARD, OOM_PART_UNKNOWN, OOM_CAUSE_OTHER_PROCESS, "", OOM_WORK_UNKNOWN, "nvidia-smi", "batch_size"},
	/* the trial of the largest batch comes before the cache: its share does not matter yet */
	{"vllm-project/vllm#9630", AT("/l/vllm/worker/worker.py", "determine_num_available_blocks", "self.model_runner.profile_run()")
				   AT("/l/vllm/models/x.py", "forward", "h = self.mlp(h)") CUDA,
	 OOM_CRASH_INIT, OOM_PART_WARMUP, OOM_CAUSE_TOO_LARGE, "vllm", OOM_WORK_SERVER_SETUP, "max_num_batched_tokens", "gpu_memory_utilization lower"},
	{"facebookresearch/mmf#185", AT("base.py", "train", "self.restore()") AT("checkpoint.py", "restore", "trainer.optimizer.load_state_dict(saved)")
				     AT("/u/copy.py", "deepcopy", "y = copier(x, memo)") CUDA,
	 OOM_CRASH_LOAD, OOM_PART_RESTORED, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_LOADING, "map_location", "device_map"},
	/* it generates nothing; one tensor beyond the card asks for no smaller states */
	{"axolotl-ai-cloud/axolotl#971", AT("/s/axolotl/monkeypatch/attn.py", "generate_qkv", "q = unpad(q)") AT("/l/flash_attn/bert_padding.py", "forward",
	    "return torch.gather(")
					 "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 GiB (GPU 0; 79.15 GiB total capacity; "
					     "5.50 GiB already allocated; 73.00 GiB free; 5.60 GiB reserved in total by PyTorch)\n",
	 OOM_CRASH_FORWARD, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "axolotl", OOM_WORK_TRAINING, "that one tensor", "paged_adamw"},
	{"huggingface/trl#1626", "half of the training is done. We use the DPOTrainer.\nCUDA out of memory. Tried to allocate 18.00 GiB. GPU 0 has a total "
	    "capacity of 22.19 GiB of which 12.00 GiB is free. "
				 "Of the allocated memory 7.00 GiB is allocated by PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated.\n",
	 OOM_CRASH_TRAIN_STEP, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "trl", OOM_WORK_TRAINING, "longest", NULL},
	/* the sampler is not the decoder */
	{"Comfy-Org/ComfyUI#7853", "# ComfyUI Error Report\n- **Node Type:** KSampler\n- **Exception Type:** torch.OutOfMemoryError\n- **Exception "
	    "Message:** Allocation on device \n",
	 OOM_CRASH_INFERENCE, OOM_PART_SAMPLER, OOM_CAUSE_TOO_LARGE, "comfyui", OOM_WORK_INFERENCE, "--lowvram", "Tiled"},
	{"ggml-org/llama.cpp#9629", "ggml_cuda_host_malloc: failed to allocate 1800.00 MiB of pinned memory: invalid argument\nllm_load_tensors:        CPU "
	    "buffer size =  8000.00 MiB\n",
	 OOM_CRASH_LOAD, OOM_PART_WEIGHTS, OOM_CAUSE_HOST_RAM, "llama.cpp", OOM_WORK_LOADING, "GGML_CUDA_NO_PINNED", "mmap"},
	/* ranks of a launcher are given no device map */
	{"axolotl-ai-cloud/axolotl#998", "Loading checkpoint shards:  70%|\n"
	    CUDA "W torch/distributed/elastic/multiprocessing/api.py: Sending process 33 closing signal SIGTERM\n",
	 OOM_CRASH_LOAD, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "transformers", OOM_WORK_LOADING, "ZeRO-3", "device_map"},
	/* moments, where no frame is */
	{"hiyouga/LlamaFactory#1221", "batch size=1\n`denom = (exp_avg_sq.sqrt() / c).add_(eps)\n" CUDA, OOM_CRASH_OPTIMIZER, OOM_PART_STATES,
	 OOM_CAUSE_TOO_LARGE, "", OOM_WORK_TRAINING, "optimizer state", "halve the micro-batch"},
	/* what a worker was told; a card that lends is no card with a cap; an error behind the message is another's */
	{"vllm-project/vllm#10034", "INFO Loading model weights took 10.0 GB\n(VllmWorkerProcess pid=7) ERROR 1.py:2] Exception in worker VllmWorkerProcess "
	    "while "
				    "processing method determine_num_available_blocks: " CUDA,
	 OOM_CRASH_INIT, OOM_PART_WARMUP, OOM_CAUSE_TOO_LARGE, "vllm", OOM_WORK_SERVER_SETUP, "max_num_seqs", "gpu_memory_utilization lower"},
	{"insanely-fast-whisper#162", "CUDA out of memory. Tried to allocate 60.00 MiB. GPU 0 has a total capacty of 11.00 GiB of which 4.48 GiB is free. Of "
	    "the allocated "
				      "memory 5.20 GiB is allocated by PyTorch, and 276.00 MiB is reserved by PyTorch but unallocated.\nI use batch size = "
				          "16\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_UNKNOWN, "", OOM_WORK_UNKNOWN, "the driver's", TRAINING},
	{"ultralytics/ultralytics#843", "yolo detect train data=a.yaml epochs=100\nRuntimeError: CUDA out of memory. Tried to allocate 1.25 GiB \n"
					"Traceback (most recent call last):\n" AT("/w/engine/model.py", "train", "return torch.load(best)")
					"FileNotFoundError: [Errno 2] No such file or directory: 'best.pt'\n",
	 OOM_CRASH_TRAIN_STEP, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "ultralytics", OOM_WORK_TRAINING, "batch= lower", "map_location"},
	{"graphdeco-inria/gaussian-splatting#394", "Traceback (most recent call last):\n" AT("/g/gaussian-splatting/scene/cameras.py", "__init__",
	    "self.image = image.to(where)")
						  CUDA, OOM_CRASH_INIT, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "gaussian-splatting", OOM_WORK_SETUP,
						      "--data_device cpu", "nvidia-smi"},
	{"unslothai/unsloth#2504", "m = FastModel.from_pretrained(\"x\", load_in_4bit=True)\nFile /l/transformers/modeling_utils.py:4399, in "
	    "from_pretrained(cls)\n"
				   "-> 4399     ) = cls._load_pretrained_model(\n" CUDA "Unsloth\n",
	 OOM_CRASH_LOAD, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "unsloth", OOM_WORK_LOADING, "a smaller model", "load_in_4bit"},
	{"lllyasviel/Fooocus#237", "RuntimeError: [enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you "
	    "tried to allocate 33554432 bytes.\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_HOST_RAM, "", OOM_WORK_UNKNOWN, "page file", TRAINING},
	/* a pipeline's own option that keeps parts on the host; Lightning's bar; a tensor beyond the card is no weight */
	{"Wan-Video/Wan2.1#205", "python generate.py --task t2v-14B --ckpt_dir ./Wan2.1 --offload_model True\n" CUDA, OOM_CRASH_INFERENCE,
	 OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "wan", OOM_WORK_INFERENCE, "smaller --size", "keep only the part"},
	{"ml4bio/Dense-Homolog-Retrieval#23", CUDA "Predicting:   0%|\n", OOM_CRASH_INFERENCE, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "",
	 OOM_WORK_INFERENCE, "fewer inputs", TRAINING},
	{"heykeetae/Self-Attention-GAN#59", "CUDA out of memory. Tried to allocate 200.00 GiB (GPU 0; 10.92 GiB total capacity; 2.00 GiB already "
	    "allocated; 8.00 GiB free; 50.00 MiB cached)\n",
	 OOM_CRASH_UNKNOWN, OOM_PART_UNKNOWN, OOM_CAUSE_TOO_LARGE, "", OOM_WORK_UNKNOWN, "one tensor smaller", "being loaded"},
};

static int wrong(const char *after, const char *what, const char *expected, const char *got)
{
	if (!strcmp(expected, got))
		return 0;
	print_error("%s: %s: wanted \"%s\", got \"%s\"\n", after, what, expected, got);
	return 1;
}

static void test_answers(void **state)
{
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(want[i].text, strlen(want[i].text), &c));
		oom_crash_answer(&c, &a);
		bad += wrong(want[i].after, "phase", oom_crash_phase_str(want[i].phase), oom_crash_phase_str(c.phase));
		bad += wrong(want[i].after, "cause", oom_cause_info(want[i].cause)->name, oom_cause_info(c.cause[0].cause)->name);
		bad += wrong(want[i].after, "program", want[i].program, c.program);
		bad += wrong(want[i].after, "work", oom_crash_work_str(want[i].work), oom_crash_work_str(oom_crash_work(&c)));
		if (want[i].part != c.part) {
			print_error("%s: part %d, not %d\n", want[i].after, (int)c.part, (int)want[i].part);
			bad++;
		}
		if (want[i].first && !among(&a, 4, want[i].first)) {
			print_error("%s: \"%s\" is not among the first, which begin with \"%s\"\n", want[i].after, want[i].first, a.fix[0]);
			bad++;
		}
		if (want[i].never && among(&a, OOM_ANSWER_FIXES, want[i].never)) {
			print_error("%s: \"%s\" is offered\n", want[i].after, want[i].never);
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

/* What is not training is never offered a training's ladder; nothing is named a cause below even odds; a
 * sentence claims no figure that the text does not give. */
static void test_promises(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(want[i].text, strlen(want[i].text), &c));
		oom_crash_answer(&c, &a);
		assert_true(c.n_causes > 0 && c.cause[0].confidence >= 0.5);
		assert_true(a.n_fix > 0 && *a.happened);
		if (oom_crash_work(&c) != OOM_WORK_TRAINING)
			assert_false(a.training);
		if (!c.known[OOM_CRASH_FREE])
			assert_null(strstr(a.happened, "were free"));
	}
}

/* XLA's own totals and the largest buffer of its list, on a GPU and on a TPU (own numbers in the wording of
 * xla/service/buffer_assignment.cc and of XLA's TPU compiler). */
static void test_xla_totals(void **state)
{
	static const char gpu[] = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes.\n"
				  "BufferAssignment stats:\n             parameter allocation:  512.00MiB\n"
				  "              constant allocation:         0B\n        maybe_live_out allocation:    1.50GiB\n"
				  "     preallocated temp allocation:    3.00GiB\n                 total allocation:    5.00GiB\n"
				  "Peak buffers:\n\tBuffer 1:\n\t\tSize: 256.00MiB\n\tBuffer 2:\n\t\tSize: 1.00GiB\n"
				  "\t\tOperator: op_name=\"jit(step)/dot_general\"\n";
	static const char tpu[] = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.00G of 15.48G hbm. Exceeded.\n"
				  "Total hbm usage >= 20.50G:\n    reserved        530.00M\n    program          12.00G\n"
				  "    arguments         8.00G\n";
	struct oom_crash c;
	struct oom_crash_answer a;

	(void)state;
	assert_true(oom_crash_decode(gpu, strlen(gpu), &c));
	assert_string_equal(c.program_total, "5.00GiB: 512.00MiB of parameters, 1.50GiB of results, 3.00GiB of temporaries");
	assert_string_equal(c.largest, "1.00GiB, jit(step)/dot_general");
	assert_true(oom_crash_decode(tpu, strlen(tpu), &c));
	assert_string_equal(c.program_total, "20.50G: 530.00M reserved, 12.00G of the program, 8.00G of arguments");
	/* the whole program, not one tensor, is larger than the chip */
	oom_crash_answer(&c, &a);
	assert_non_null(strstr(a.happened, "all of it takes 20.00G"));
	for (size_t i = 0; i < a.n_evidence; i++)
		assert_null(strstr(a.evidence[i], "the one tensor"));
}

/* A card an eighth of which is neither free nor PyTorch's is said to be. */
static void test_outside(void **state)
{
	static const char text[] = "CUDA out of memory. Tried to allocate 200.00 MiB (GPU 0; 8.00 GiB total capacity; 5.50 GiB already "
				   "allocated; 0 bytes free; 5.75 GiB reserved in total by PyTorch)\n";
	struct oom_crash c;
	struct oom_crash_answer a;
	bool said = false;

	(void)state;
	assert_true(oom_crash_decode(text, strlen(text), &c));
	oom_crash_answer(&c, &a);
	for (size_t i = 0; i < a.n_evidence; i++)
		said |= strstr(a.evidence[i], "2.25 GiB of the card are neither free") != NULL;
	assert_true(said);
}

/* What is no message: advice about a later run, and words in another sense. */
static void test_no_message(void **state)
{
	static const char *const texts[] = {
		"If you run out of memory, lower the batch size.\n",
		"This helps to avoid out of memory errors.\n",
		"epoch 1 loss 0.5\n",
	};
	struct oom_crash c;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_false(oom_crash_decode(texts[i], strlen(texts[i]), &c));
	/* nobody's wording in particular is one all the same */
	assert_true(oom_crash_decode("engine: device ran out of memory\n", 33, &c));
	assert_string_equal(c.framework, "device");
	assert_true(oom_crash_decode("Domain=MTLCommandBufferErrorDomain Code=8 \"Insufficient Memory (IOAF code 8)\"\n", 76, &c));
	assert_string_equal(c.framework, "metal");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers), cmocka_unit_test(test_no_message), cmocka_unit_test(test_xla_totals), cmocka_unit_test(test_outside),
		cmocka_unit_test(test_promises),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
