/* Answers that take into account what the run was told and what its numbers say: texts of our own in the form of
 * public threads (named per row), with words that one of the first fixes must hold, and words that none may, for the
 * reason given. Arithmetic stands beside the row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define FULL "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total capacity of 23.50 GiB of which " \
	     "100.00 MiB is free. Of the allocated memory 22.50 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"
/* a step of the Trainer's */
#define STEP TRACE AT("/l/transformers/trainer.py", "training_step", "self.accelerator.backward(loss)")

static const struct crash_want want[] = {
	/* ---- a server's share ---- */
	{"vllm-project/vllm#57475", "vllm serve m --gpu-memory-utilization 0.98 --max-num-seqs 1 --max-num-batched-tokens 2048\n"
				    "INFO [model_runner.py] Capturing CUDA graphs\nERROR EngineCore: " FULL, 1,
	 "--gpu-memory-utilization 0.98 -> 0.95", "0.90 to 0.85", "the capture of CUDA graphs", "the value that is set is the one to lower"},
	{"the same", "vllm serve m --gpu-memory-utilization 0.98 --max-num-seqs 1 --max-num-batched-tokens 2048\nERROR EngineCore: " FULL, 4,
	 "--max-num-batched-tokens 2048 -> 1024", "max_num_seqs", NULL, "one request at a time is the least there is"},
	{"vllm-project/vllm#15598", "INFO the current vLLM instance can use total_gpu_memory (23.50GiB) x gpu_memory_utilization (0.97) = 22.80GiB\n"
				    "INFO Capturing cudagraphs for decoding. To run the model in eager mode, set 'enforce_eager=True' or use '--enforce-eager' in the CLI.\n"
				    "ERROR worker_base.py: Error executing method 'initialize_cache'.\nERROR worker_base.py: " FULL, 2,
	 "enforce_eager=True", NULL, NULL, "a program's own advice is no setting"},
	{"vllm-project/vllm#17431", "vllm serve m --gpu-memory-utilization 0.4\nValueError: No available memory for the cache blocks. Try increasing "
				    "`gpu_memory_utilization` when initializing the engine.\n", 1,
	 "--gpu-memory-utilization 0.4 -> 0.9", NULL, NULL, "a cache without room asks for more of the card"},
	{"the same", "vllm serve m --gpu-memory-utilization 0.96 --max-model-len 32768\nValueError: No available memory for the cache blocks. Try increasing "
		     "`gpu_memory_utilization` when initializing the engine.\n", 1,
	 "--max-model-len 32768 -> 16384", "gpu-memory-utilization", NULL, "there is no more to give"},
	{"vllm-project/vllm-omni#276", "ValueError: Free memory on device (0.50/79.20 GiB) on startup is less than desired GPU memory utilization (0.6, 47.52 GiB). "
				       "Decrease GPU memory utilization or reduce GPU memory used by other processes.\n", 1,
	 "end that process", NULL, NULL, "no share of a card that is full helps"},
	{"sgl-project/sglang#393", "python -m sglang.launch_server --model-path m --mem-fraction-static 0.9\n" TRACE
				   AT("/l/sglang/srt/managers/model_rpc.py", "exposed_step", "self.forward_step()") FULL, 1,
	 "--mem-fraction-static 0.9 -> 0.87", "--mem-fraction-static lower", NULL, "by its value"},
	/* ---- engines beside trainers ---- */
	{"huggingface/trl#3200", TRACE AT("/l/trl/trainer/grpo_trainer.py", "__init__", "self.llm = LLM(") AT("/l/vllm/entrypoints/llm.py", "__init__", "engine = f(")
				 AT("/l/vllm/engine/llm_engine.py", "_initialize_kv_caches", "self.model_executor.initialize_cache(n)") FULL, 1,
	 "vllm_gpu_memory_utilization", "device_map", NULL, "the engine's share is what can be changed"},
	{"modelscope/ms-swift#3871", "swift rlhf --rlhf_type grpo --use_vllm false --vllm_gpu_memory_utilization 0.8 --per_device_train_batch_size 1\n" TRACE
				     AT("/l/swift/trainers/rlhf_trainer/grpo_trainer.py", "compute_loss", "l = self._get_per_token_logps(m)") FULL, 6,
	 "--use_liger_kernel", "vllm_gpu_memory_utilization", NULL, "an engine that is switched off holds nothing"},
	{"IDEA-Research/Rex-Omni#110", "rollout.gpu_memory_utilization=0.6\n" TRACE AT("/w/verl/workers/sharding_manager/fsdp_vllm.py", "__enter__",
										      "self.inference_engine.wake_up()") FULL, 1,
	 "rollout.gpu_memory_utilization 0.6 -> 0.57", NULL, NULL, "what woke up is the engine"},
	/* ---- batches and lengths ---- */
	{"hiyouga/LlamaFactory#7490", "per_device_train_batch_size: 4\ngradient_accumulation_steps: 2\ncutoff_len: 16384\nllamafactory-cli train a.yaml\n" STEP FULL, 1,
	 "per_device_train_batch_size 4 -> 2, gradient_accumulation_steps 2 -> 4", "halved", NULL, "by their values"},
	{"hiyouga/LlamaFactory#6531", "per_device_train_batch_size: 1\ncutoff_len: 15000\nllamafactory-cli train a.yaml\n" STEP FULL, 6,
	 "cutoff_len 15000 -> 7500", "per_device_train_batch_size", "a batch of one", "nothing left to halve but the length"},
	{"zai-org/GLM-4#237", TRACE AT("/l/transformers/trainer.py", "evaluation_loop", "logits = self.prediction_step(m)")
			      AT("/l/m.py", "forward", "lm_logits = lm_logits.to(torch.float32)\n    logits = self.lm_head(x)") FULL, 1,
	 "per_device_eval_batch_size=1", "inference batch", NULL, "an evaluation has a batch of its own"},
	/* ---- options of scripts that no table knows, by what their names are about ---- */
	{"own", "python fit.py --data-batchsize 24 --crop-size 640\n" TRACE AT("fit.py", "train_epoch", "loss.backward()") FULL, 1,
	 "--data-batchsize 24 -> 12; halve", NULL, NULL, "the script's own name of its batch"},
	/* 640 x 3 / 4 = 480 */
	{"own", "python fit.py --data-batchsize 24 --crop-size 640\n" TRACE AT("fit.py", "train_epoch", "loss.backward()") FULL, 6,
	 "--crop-size 640 -> 480", NULL, NULL, "and of the side of its images"},
	{"own", "torchrun fit.py --clip_batchsize 1 --text_seqlen 4096\n" TRACE AT("fit.py", "train_epoch", "loss.backward()") FULL, 6,
	 "--text_seqlen 4096 -> 2048", "halve the micro-batch", "a batch of one", "one clip at a time is the least there is"},
	{"own", "python fit.py --test-batch-size 8 --global_batch_size 512\n" TRACE AT("fit.py", "train_epoch", "loss.backward()") FULL, 1,
	 "halve the micro-batch", "->", NULL, "another batch than that of a step"},
	{"own", "python fit.py --val_batch_size 8\n" TRACE AT("fit.py", "validate", "scores = net(x)") FULL, 2, "--val_batch_size 8 -> 4", NULL, NULL,
	 "an evaluation's batch has a name of its own"},
	{"own", "batch size per step / \xe3\x83\x90: 6\n" TRACE AT("fit.py", "train_epoch", "loss.backward()") FULL, 1, "batch size 6 -> 3", NULL, NULL,
	 "the log prints it, in two languages"},
	{"own", "Total train batch size = 64\nInstantaneous batch size per device = 8\n" STEP FULL, 1, "batch size 8 -> 4", "64", NULL, "that of one card, not of all"},
	{"own", "\xe8\xae\xbe batch_size=1\xef\xbc\x8c\xe5\x86\x8d\n" STEP FULL, 6, "gradient_checkpointing", "halved", "a batch of one", "a number ends at a sign of another script"},
	{"own", "python -m sglang.launch_server --model-path m --chunked-prefill-size 2048\n" TRACE AT("/l/sglang/srt/managers/scheduler.py", "event_loop", "self.run_batch(b)")
		FULL, 6, "--chunked-prefill-size 2048 -> 1024", "lower, 2048", NULL, "an example of a number is no number to keep"},
	{"own", "\xe6\x88\x91\xe5\xb0\x86" "batchsize\xe8\xae\xbe\xe7\xbd\xae\xe4\xb8\xba" "8\xe5\xb0\xb1\n" STEP FULL, 1, "batch size 8 -> 4", NULL, NULL, "as people write it: batchsize set to 8"},
	{"own", "An error when predicting a picture:\n" FULL "{\n \"train_loader\": {\n  \"batch_size\": 4,\n  \"crop_size\": 225\n", 6, "a smaller inference batch", "->", NULL,
	 "what it was trained with is nothing to an inference"},
	{"own", "python show.py --batch-size 32\n" TRACE AT("show.py", "infer", "y = net(x)") FULL, 6, "--batch-size 32 -> 16", NULL, NULL, "its own command is"},
	/* ---- what is set already ---- */
	{"black-forest-labs/flux#500", "from diffusers import FluxPipeline\npipe.enable_model_cpu_offload()\nimage = pipe(p, num_inference_steps=4)\n" FULL, 1,
	 "enable_sequential_cpu_offload()", "enable_model_cpu_offload", NULL, "the faster way is taken already"},
	{"Comfy-Org/ComfyUI#6616", "- **Node Type:** VAEDecodeTiled\n- **Exception Message:** Allocation on device\n"
				   AT("C:\\ComfyUI\\nodes.py", "decode", "images = vae.decode_tiled(samples)"), 1,
	 "smaller tile_size", "in place of VAE Decode", NULL, "the node that refused is the tiled one"},
	{"axolotl-ai-cloud/axolotl#1717", TRACE AT("/w/axolotl/src/axolotl/train.py", "train", "model, peft = load_model(cfg)")
					  AT("/l/bitsandbytes/nn/modules.py", "to", "super().to(device=device)") "[rank1]: " FULL, 1,
	 "cpu_ram_efficient_loading", "load_in_4bit", NULL, "the code that ran quantises already"},
	/* ---- other runtimes, and programs without a vocabulary ---- */
	{"google/flax#1406", "run_clm_flax.py --per_device_train_batch_size=64\n" TRACE AT("run_clm_flax.py", "main", "state, metric = p_train_step(state, batch)")
			     "RuntimeError: Resource exhausted: Attempting to allocate 2.97G. That was not possible. There are 2.69G free.\n", 1,
	 "--per_device_train_batch_size 64 -> 32", "deepspeed", NULL, "what PyTorch's frameworks call theirs is nothing to JAX"},
	{"ultralytics/ultralytics#18642", TRACE AT("/l/ultralytics/engine/trainer.py", "_do_train", "self.loss = self.model(batch)") FULL, 3,
	 "imgsz", "AdamW", NULL, "a detector has images to make smaller, and few states"},
	{"dbolya/yolact#697", TRACE AT("eval.py", "evaluate", "prep_metrics(d)") AT("output_utils.py", "postprocess", "masks = F.interpolate(masks, (h, w))")
			      "RuntimeError: CUDA out of memory. Tried to allocate 37.00 GiB (GPU 0; 7.79 GiB total capacity; 1.40 GiB already allocated; 4.21 GiB free; "
			      "1.80 GiB reserved in total by PyTorch)\n", 2,
	 "fewer objects", NULL, "scaled up to the size of the image", "masks of all objects at once"},
	{"keras-team/keras#13376", "ResourceExhaustedError: OOM when allocating tensor with shape[300,64,256,256] and type float on GPU:0 by allocator GPU_0_bfc\n", 1,
	 "batch", NULL, "that shape, 300, is", "the first dimension is the batch"},
	{"vllm-project/vllm#22173", "WARNING profiling.py: The sequence length used for profiling (max_num_batched_tokens / max_num_seqs = 8192) is too short to hold the "
				    "multi-modal embeddings\n" TRACE AT("/l/vllm/worker/worker.py", "determine_num_available_blocks", "self.model_runner.profile_run()") FULL, 1,
	 "limit_mm_per_prompt lower", "8192", NULL, "the trial run's largest batch is one of images, and a formula is no option"},
	{"EvolvingLMMs-Lab/lmms-eval#436", "lmms_eval --model qwen2_vl --batch_size 1\n" TRACE AT("/w/lmms_eval/models/qwen2_vl.py", "generate_until", "self.model.generate(x)")
				    AT("/w/transformers/models/qwen2_vl/modeling_qwen2_vl.py", "forward",
														"x = self.act(x)") FULL, 1,
	 "max_pixels lower", "batch of prompts", NULL, "one prompt at a time: what is large are its images"},
	{"pytorch/pytorch#152351", TRACE AT("/l/transformers/trainer.py", "training_step", "self.accelerator.backward(loss)")
				   "RuntimeError: MPS backend out of memory (MPS allocated: 11.00 GB, other allocations: 6.00 GB, max allowed: 18.13 GB). Tried to allocate 400.00 MB "
				   "on private pool.\n", 6, "an optimizer with less state", "bnb", NULL, "bitsandbytes has no kernels there"},
	{"Legal-NLP-EkStep/legal_NER#6", TRACE AT("/l/spacy/training/loop.py", "train_while_improving", "nlp.update(") FULL, 1, "[training.batcher]", "AdamW", NULL,
	 "spaCy's batches are set in its configuration"},
	{"unslothai/unsloth#432", TRACE AT("/t/train.py", "<module>", "model.save_pretrained_merged(d, t)") AT("/l/unsloth/save.py", "unsloth_save_model", "w = f(p)") FULL, 1,
	 "maximum_memory_usage", NULL, NULL, "the merge has an option of its own"},
	{"InternLM/lmdeploy#2915", "lmdeploy lite auto_awq m --calib-samples 128 --calib-seqlen 2048\n" TRACE AT("/o/lmdeploy/lite/quantization/calibration.py", "calibrate",
														"_ = model(data)") FULL, 1,
	 "--calib-samples 128 -> 64, --calib-seqlen 2048 -> 1024", "(AWQ) model", NULL, "who makes an AWQ model has none yet"},
	{"casper-hansen/AutoAWQ#242", TRACE AT("/t/awq/quantize/quantizer.py", "_get_input_feat", "x = layer(x)") AT("/l/m.py", "forward", "a = scaled_dot_product_attention(q, k, v)")
				      FULL, 1, "fewer and shorter samples", "sdpa", NULL, "the call that ran is the one without scores"},
	{"microsoft/foundry-dev-tools#37", TRACE AT("/l/transformers/trainer.py", "training_step", "loss = self.compute_loss(m)")
					   AT("/m/modeling_phi.py", "forward", "h = self.transformer(ids, past_key_values=past_key_values)")
					   AT("/m/modeling_phi.py", "forward", "a = torch.softmax(scores, dim=-1)") FULL, 1,
	 "sdpa", NULL, "scores or mask", "what is passed through a call is not what it asks for"},
	{"own", "python main.py --highvram\ngot prompt\n" TRACE AT("/c/ComfyUI/comfy/model_management.py", "load_models_gpu", "m.model_load(x)")
		"torch.OutOfMemoryError: Allocation on device\n", 1, "without --highvram", "and --highvram", NULL, "an option that takes memory is left out first"},
	/* 9e9 x 12 bytes = 100.6 GiB */
	{"hiyouga/LlamaFactory#4629", "deepspeed --num_gpus 1 train.py --deepspeed ds_z3_offload_config.json --model_name_or_path THUDM/glm-4-9b-chat\n"
				      "[INFO] [utils.py:791:see_memory_usage] Before initializing optimizer states\n"
				      "[ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -9\n", 1,
	 "nvme", NULL, "100.6 GiB", "states that are offloaded, counted"},
	{"XLabs-AI/x-flux#12", "INFO -   Instantaneous batch size per device = 1\n" TRACE AT("/x/train_flux_lora.py", "main", "accelerator.backward(loss)") FULL, 1,
	 "gradient_checkpointing", "train_batch_size", "a batch of one", "the log says so"},
	{"ollama/ollama#6860", "llama_new_context_with_model: n_ctx = 4096\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 144.00 MiB on device 4: cudaMalloc failed: "
			       "out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA4 buffer of size 150994944\n" TRACE
			       AT("/d/demo.py", "<module>", "llm = LlamaCpp("), 6, "less for the card that refused", NULL, NULL, "the fifth card is not the first"},
	{"ayulockin/neurips-llm-efficiency-challenge#5", "python lit-gpt/finetune/lora.py --precision bf16-true\n" TRACE
								 AT("/l/lightning/fabric/fabric.py", "backward", "self._strategy.backward(t)") FULL, 1,
	 "--train.micro_batch_size lower", "finetune_lora instead", NULL, "the script's name says that it trains adapters"},
	{"Tencent-Hunyuan/HunyuanVideo-Avatar#61", "sample_gpu_poor.py --use-fp8 --cpu-offload --infer-steps 50\n" TRACE
						   AT("/h/hymm_sp/diffusion/pipelines/pipeline_hunyuan_video.py", "__call__", "image = self.vae.decode(latents)[0]") FULL, 1,
	 "tiles", "enable_model_cpu_offload", "weights on the host", "parts wait on the host already"},
	{"QwenLM/Qwen#502", "finetune.py --use_lora --q_lora --gradient_checkpointing --per_device_train_batch_size 2\n" STEP FULL, 1,
	 "--per_device_train_batch_size 2 -> 1", "deepspeed", NULL, "a base of 4 bits has little to shard"},
	{"SciSharp/LLamaSharp#1236", "load_tensors: offloaded 49/49 layers to GPU\nload_tensors:      Vulkan0 model buffer size = 17350.06 MiB\n"
				     "ggml_vulkan: Device memory allocation of size 1073741824 failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"
				     "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 1073741824\nllama_model_load: error loading model\n", 1,
	 "-ngl lower", "each of the 49", NULL, "a part of the weights was refused: how many layers fit is not said"},
	/* ---- layers, by their size: 2300 MiB on 23 layers are 100 each; 150 MiB need two, and one is spared ---- */
	{"mozilla-ai/llamafile#372", "llm_load_tensors: offloaded 23/23 layers to GPU\nllm_load_tensors:        CPU buffer size =   250.00 MiB\n"
				     "llm_load_tensors:      CUDA0 buffer size =  2300.00 MiB\nllama_new_context_with_model: n_ctx      = 512\n"
				     "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 150.00 MiB on device 0: cudaMalloc failed: out of memory\n"
				     "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 157286400\n", 1,
	 "-ngl 20 or lower: each of the 23 layers on the card takes about 100 MiB", NULL, NULL, "the log says how large a layer is"},
	/* ---- the model's size by its name: 70e9 x 2 bytes = 130.4 GiB ---- */
	{"AnswerDotAI/fsdp_qlora#24", "train.py --model_name meta-llama/Llama-2-70b-hf\ntorch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with "
				      "signal SIGKILL\n", 6, "host memory", NULL, "130.4 GiB in 16 bits", "arithmetic of the host's memory"},
	/* 30e9 x 2 = 55.9 GiB on a card of 23.5 */
	{"own", "vllm serve Qwen/Qwen3-30B --max-num-seqs 8\n" TRACE AT("/l/vllm/model_executor/model_loader/loader.py", "load_model", "model = m(c)") FULL, 2,
	 "tensor_parallel_size", NULL, "55.9 GiB", "weights that do not fit come first"},
	/* 8e9 x 16 = 119.2 GiB */
	{"own", "--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 4\n" STEP FULL, 1, "deepspeed", NULL, "119.2 GiB",
	 "no batch is small enough for states that are larger than the card"},
	/* ---- others ---- */
	{"FireRedTeam/FireRedTTS2#17", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 26.00 MiB. GPU 0 has a total capacity of 11.66 GiB of which 10.00 MiB is "
				       "free. Process 11 has 600.00 MiB memory in use. Process 12 has 1.20 GiB memory in use. Including non-PyTorch memory, this process has 9.80 GiB "
				       "memory in use. Of the allocated memory 9.40 GiB is allocated by PyTorch, and 160.00 MiB is reserved by PyTorch but unallocated.\n", 6,
	 "if it was", NULL, "held by the other processes listed", "what others hold would have been enough"},
	{"bitsandbytes-foundation/bitsandbytes#340", TRACE AT("/l/transformers/trainer.py", "_save_checkpoint", "self.save_model(d)")
						     AT("/l/torch/nn/modules/module.py", "state_dict", "hook(self)") FULL, 1,
	 "adapter alone", "ZeRO-3", NULL, "nothing is gathered where one process saves"},
	{"ollama/ollama#10920", "Error: model requires more system memory (164.8 GiB) than is available (13.4 GiB)\n", 1,
	 "a smaller tag", NULL, "12.3 times", "164.8 / 13.4"},
	/* ---- what a log prints of what was set ---- */
	{"ikawrakow/ik_llama.cpp#749", "llama_new_context_with_model: n_ctx      = 65536\nllama_new_context_with_model: n_ubatch   = 2048\n"
				       "llama_new_context_with_model: flash_attn = 0\n"
				       "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 90000.00 MiB on device 0: cudaMalloc failed: out of memory\n"
				       "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 94371840000\n", 2,
	 "-ub 2048 -> 512", NULL, NULL, "by the option's name, not the log's, and behind what a card of any size needs first"},
	{"the same", "llama_context: n_ubatch      = 512\nllama_context: flash_attn    = enabled\n"
		     "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 94371840000\n", 1,
	 "-ub 512 -> 256", "score matrix", NULL, "flash attention is on"},
	{"huggingface/text-generation-inference#1164", "ERROR warmup{max_input_length=64 max_prefill_tokens=256}:warmup: text_generation_client: Server error: Not "
						       "enough memory to handle 256 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\n", 4,
	 "--quantize", "prefill-tokens lower", NULL, "there is no smaller prefill"},
	/* ---- what was asked for, where only pieces were too small ---- */
	{"hiyouga/LlamaFactory#2744", TRACE AT("/l/llamafactory/train/sft/workflow.py", "run_sft", "trainer.train()")
				      AT("/l/transformers/models/qwen2/modeling_qwen2.py", "forward", "shift_logits = logits[..., :-1, :].contiguous()")
				      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 24.00 GiB of which 500.00 MiB is free. "
				      "Of the allocated memory 13.00 GiB is allocated by PyTorch, and 10.00 GiB is reserved by PyTorch but unallocated.\n", 2,
	 "enable_liger_kernel", NULL, NULL, "logits in one piece"},
	{"own", TRACE AT("/l/lightning/pytorch/loops/evaluation_loop.py", "run", "self._evaluation_step(b)") AT("m.py", "validation_step", "x = self(b)")
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 12.00 GiB of which 500.00 MiB is free. "
		"Of the allocated memory 9.00 GiB is allocated by PyTorch, and 2.40 GiB is reserved by PyTorch but unallocated.\n", 3,
	 "val_dataloader", NULL, NULL, "an evaluation in pieces has a batch as well"},
	/* 3.91 GiB / (4 x 128256) = 8183 tokens */
	{"own", "llamafactory-cli train a.yaml\nmodel_name_or_path: m/Meta-Llama-3-8B\nper_device_train_batch_size: 2\n" TRACE
		AT("/l/transformers/loss/loss_utils.py", "ForCausalLMLoss", "logits = logits.float()")
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 0 has a total capacity of 24.00 GiB of which 2.00 GiB is free. "
		"Of the allocated memory 21.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n", 6,
	 "enable_liger_kernel", NULL, "logits of about 8183 tokens, 4092 of each", "the request solved for its tokens"},
	{"own", STEP "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 2.00 GiB is free. "
		     "Of the allocated memory 21.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n", 6,
	 "per_device_train_batch_size", NULL, "of 50 % of its size", "how much smaller it had to be"},
	/* ---- shapes, stages, one card ---- */
	{"amir-aghdam/3D-UNet#2", TRACE AT("fit.py", "<module>", "loss = criterion(output, target)") AT("/l/torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(")
				  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 GiB. GPU 0 has a total capacity of 48.00 GiB of which 1.00 GiB is free. "
				  "Of the allocated memory 46.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n", 1,
	 "shapes that go into the loss", NULL, NULL, "no batch makes a loss five times the card"},
	{"own", "llamafactory-cli train a.yaml\ndeepspeed: examples/deepspeed/ds_z2_config.json\nper_device_train_batch_size: 1\n" STEP FULL, 6,
	 "ZeRO-3 in place of stage 2", NULL, NULL, "the stage that it has is none to advise"},
	{"own", "Unsloth 2025.3\n Num GPUs used = 1\n" STEP FULL, 6, "gradient", "deepspeed=", NULL, "one process shares with nobody"},
	/* a call of PyTorch's own is no graph of nodes */
	{"MIC-DKFZ/nnUNet#122", TRACE AT("nnunet/network_trainer.py", "run_iteration", "l.backward()")
				AT("/l/torch/tensor.py", "backward", "torch.autograd.backward(self, gradient, retain_graph, create_graph)")
				"RuntimeError: CUDA out of memory. Tried to allocate 450.00 MiB (GPU 0; 10.73 GiB total capacity; 9.23 GiB already allocated; 7.75 MiB free; "
				"542.02 MiB cached)\n", 6,
	 "plans file", "hidden channels", NULL, "patches, no edges"},
};

static void test_told(void **state)
{
	(void)state;
	crash_all_met(want, sizeof(want) / sizeof(want[0]));
}

/* Said once: no fix holds another, and none stands twice under one option. */
static void test_once(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(want[i].text, strlen(want[i].text), &c));
		oom_crash_answer(&c, &a);
		for (size_t k = 0; k < a.n_fix; k++)
			for (size_t m = k + 1; m < a.n_fix; m++)
				assert_null(strstr(a.fix[k], a.fix[m]));
	}
}

/* The rung of the ladder is that of the first thing to do, not always the first: a batch of one has been halved, states
 * of the optimizer are made small. */
static void test_rung(void **state)
{
	static const struct {
		const char *text;
		int rung;
	} rungs[] = {
		{STEP FULL, 1},
		{"per_device_train_batch_size=1\n" STEP FULL, 3},
		{"per_device_train_batch_size=1 gradient_checkpointing=True\n" STEP FULL, 2},
		{TRACE AT("/l/transformers/trainer.py", "_inner_training_loop", "self.optimizer.step()") AT("/l/torch/optim/adamw.py", "_init_group", "state[\"exp_avg\"] = f(p)") FULL, 7},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rungs) / sizeof(rungs[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(rungs[i].text, strlen(rungs[i].text), &c));
		oom_crash_answer(&c, &a);
		assert_true(a.training);
		assert_int_equal(a.rung, rungs[i].rung);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_told), cmocka_unit_test(test_once), cmocka_unit_test(test_rung)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
