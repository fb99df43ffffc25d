/* Which levers an answer names, and in what order: what the numbers, the device and the card say comes before what helps
 * everybody, and what nothing in the text asks for is left out. Texts of our own in the form of public threads and logs (named
 * per row), the expectations written from what the thread settled or from the arithmetic beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"
#define NEW(tried, total, free, held, idle) "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " tried ". GPU 0 has a total capacity of " total " of which " free \
					    " is free. Of the allocated memory " held " is allocated by PyTorch, and " idle " is reserved by PyTorch but unallocated.\n"
#define OLD(tried, total, held, free, reserved) "RuntimeError: CUDA out of memory. Tried to allocate " tried " (GPU 0; " total " total capacity; " held " already allocated; " free \
						" free; " reserved " reserved in total by PyTorch)\n"

static const struct crash_want want[] = {
	/* ---- the device's own names ---- */
	{"oom_traces 063", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 24.00 MiB. GPU 0 has a total capacity of 11.93 GiB of which 6.00 MiB is free. Of the allocated memory 10.50 GiB is "
			   "allocated by PyTorch, and 90.00 MiB is reserved by PyTorch but unallocated.\n", 6,
	 "torch.autocast(\"xpu\"", "\"cuda\"", NULL, "PyTorch names its device in its calls"},
	{"own", "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 100.00 MiB. GPU 1 has a total capacity of 31.00 GiB of which 14.00 GiB is free.\n", 6,
	 "torch.xpu.set_per_process", "torch.cuda.", NULL, "and its module"},
	{"oom_traces 057", "Error processing tensor for shard Shard(model_id='own/model-8B', start_layer=0, end_layer=31, n_layers=32): CUDA Error 2, out of memory\n", 6,
	 "--quantize", "device_map", NULL, "what has no PyTorch has none of its options"},
	/* ---- what cannot be, or was not asked for ---- */
	{"own", "{\"batch_size\": 1, \"grad_accum\": 8, \"gradient_checkpointing\": true, \"optimizer\": \"adamw_bnb_8bit\"}\n" TRACE AT("C:\\own\\train_full.py", "main", "trainer.train()")
		AT("C:\\own\\.venv\\lib\\site-packages\\transformers\\trainer.py", "_inner_training_loop", "self.optimizer.step()") NEW("22.00 MiB", "8.00 GiB", "0 bytes", "14.20 GiB", "470.00 MiB"), 1,
	 "LoRA", "max_split_size_mb", "14.20 GiB are held where the card has 8.00: 1.8 times as much", "14.2 / 8; a batch of one is as small as it gets, and one process has nobody to shard with"},
	{"oom_traces_2 003", NEW("1002.00 MiB", "8.00 GiB", "0 bytes", "14.00 GiB", "130.00 MiB"), 1,
	 "16 bits, or quantised", NULL, "shrink to 57 %", "8 / 14; beyond the card lie weights more often than a batch"},
	{"oom_traces 017", NEW("2.00 GiB", "4.00 GiB", "2.80 GiB", "0 bytes", "0 bytes"), 1,
	 "16 bits, or quantised", "look at that one request", "nothing to speak of was held", "no batch grew where nothing was held"},
	{"oom_traces 011", OLD("72.00 MiB", "1024.00 MiB", "380.00 MiB", "0 bytes", "420.00 MiB"), 1, "another card", NULL, NULL, "a card of 1 GiB, whatever runs"},
	{"own", TRACE AT("own/hetero.py", "warmup_epoch", "pred = self.gru(x)") NEW("98.00 MiB", "8.00 GiB", "10.00 MiB", "7.50 GiB", "20.00 MiB"), 6,
	 "", "server", NULL, "only a server tries its largest batch"},
	{"LLaMA-Factory#1936", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 has a total capacty of 23.65 GiB of which 90.00 MiB is free. Process 11 has 398.00 MiB memory in "
			       "use. Process 12 has 398.00 MiB memory in use. Process 13 has 398.00 MiB memory in use. Process 10 has 22.30 GiB memory in use. Of the allocated memory 21.80 GiB is allocated by PyTorch, "
			       "and 2.30 MiB is reserved by PyTorch but unallocated.\n" TRACE AT("/l/transformers/trainer.py", "__init__", "self._move_model_to_device(model, args.device)"), 6,
	 "", NULL, "3 processes hold 398 MiB each, as much as a CUDA context", "contexts of the other ranks"},
	{"transformers#28872", " 19%|#9        | 3237/16700 [3:34:12<38:35:22, 10.32s/it]" TRACE AT("deepspeed_7b_finetune.py", "main", "trainer.train()")
			       AT("/l/transformers/trainer.py", "compute_loss", "outputs = model(**inputs)") NEW("2.40 GiB", "39.40 GiB", "1.00 GiB", "37.80 GiB", "200.00 MiB"), 1,
	 "per_device_train_batch_size", NULL, NULL, "what has run for 3237 steps fits the card, but for this one's tokens"},
	{"own", " 0%|  | 0/16700 [00:00<?, ?it/s]" TRACE AT("deepspeed_7b_finetune.py", "main", "trainer.train()")
		AT("/l/transformers/trainer.py", "compute_loss", "outputs = model(**inputs)") NEW("2.40 GiB", "39.40 GiB", "1.00 GiB", "37.80 GiB", "200.00 MiB"), 6,
	 "LoRA", NULL, "if all are trained", "7e9 x 16 bytes; the first step has shown nothing yet"},
	{"unsloth#3373", "\"-____-\"     Trainable parameters = 1,361,753,856 of 5,661,833,328 (24.05% trained)\n" TRACE AT("/l/unsloth/trainer.py", "train", "trainer.train()")
			 AT("/l/bitsandbytes/optim/optimizer.py", "init_state", "state[\"state1\"] = self.get_state_buffer(p)") NEW("640.00 MiB", "14.74 GiB", "320.00 MiB", "13.90 GiB", "300.00 MiB"), 1,
	 "without embed_tokens and lm_head", NULL, "24 %, more than adapters are: their gradients and AdamW's states take up to 12 bytes each, 15.2 GiB", "1.36e9 x 12 bytes"},
	{"own", "trainable params: 20,971,520 || all params: 7,262,703,616 || trainable%: 0.2888\n" TRACE AT("own.py", "<module>", "trainer.train()")
		AT("/l/transformers/trainer.py", "training_step", "self.accelerator.backward(loss)") NEW("640.00 MiB", "14.74 GiB", "320.00 MiB", "13.90 GiB", "300.00 MiB"), 6,
	 "", "embed_tokens", NULL, "three thousandths are adapters alone"},
	{"LLaMA-Megatron#1", TRACE AT("/w/megatron/training.py", "setup_model_and_optimizer", "optimizer = get_megatron_optimizer(model)")
			     AT("/w/megatron/optimizer/optimizer.py", "__init__", "main_param = param.detach().clone().float()") OLD("136.00 MiB", "39.39 GiB", "38.20 GiB", "53.00 MiB", "38.40 GiB"), 1,
	 "--use-distributed-optimizer", "device_map", "the optimizer's states", "fp32 copies of the weights"},
	{"Megatron-LM#525", TRACE AT("/w/megatron/training.py", "train_step", "losses = f(b)") AT("/w/megatron/model/transformer.py", "forward", "attention_probs = self.scale_mask_softmax(attention_scores, attention_mask)")
			    OLD("786.00 MiB", "31.74 GiB", "28.80 GiB", "570.00 MiB", "29.40 GiB"), 1,
	 "--recompute-activations", "scaled_dot_product_attention", NULL, "in the program's own words"},
	{"own", "   Gradient Accumulation steps = 4\n   Total batch size = 8 | Total steps = 60\n" TRACE AT("own.py", "<module>", "trainer.train()")
		AT("/l/transformers/trainer.py", "training_step", "self.accelerator.backward(loss)") NEW("640.00 MiB", "14.74 GiB", "320.00 MiB", "13.90 GiB", "300.00 MiB"), 1,
	 "per_device_train_batch_size", "longest", NULL, "how many steps there are to be is none that went through"},
	{"unsloth#3113", "---> 20 model = FastModel.from_pretrained(\nNvMapMemAllocInternalTagged: 1075072515 error 12\nRuntimeError: CUDA error: out of memory\n", 1,
	 "one memory that both use", "second copy", NULL, "what the card takes is the host's"},
	{"LMFlow#90", TRACE AT("own.py", "<module>", "m = AutoModelForCausalLM.from_pretrained(p)") AT("/l/transformers/models/llama/modeling_llama.py", "__init__", "self.lm_head = nn.Linear(d, v)")
		      "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4009910272 bytes. Error code 12 (Cannot allocate memory)\n", 1,
	 "dtype=torch.bfloat16", "shape first", NULL, "a weight is as large as its model has it"},
	/* ---- order ---- */
	{"oom_traces_2 113", AT("/l/torch/utils/data/_utils/pin_memory.py", "pin_memory", "return data.pin_memory(device)") "RuntimeError: CUDA error: out of memory\n", 1,
	 "pin_memory=False", NULL, NULL, "the refusal names what to do without"},
	{"oom_traces 041", TRACE AT("/home/user/flux-webui.git/app.py", "infer", "pipe.to(device)") NEW("80.00 MiB", "15.98 GiB", "84.00 MiB", "15.40 GiB", "260.00 MiB"), 1,
	 "enable_model_cpu_offload()", "one batch", "asked for by weights", "a pipeline is no batch"},
	{"own", TRACE AT("/l/mmdet/models/task_modules/assigners/max_iou_assigner.py", "assign", "overlaps = self.iou_calculator(a, b)")
		AT("/w/metrics/own.py", "similarity", "d = torch.cdist(a, b)") OLD("1.20 GiB", "14.56 GiB", "12.00 GiB", "0.90 GiB", "13.50 GiB"), 1,
	 "gpu_assign_thr", NULL, NULL, "pieces are only perhaps the reason: what asked comes first"},
	{"vllm#14095", "(VllmWorkerProcess pid=1) ERROR 01-01 00:00:00 [u.py:242] " NEW("20.00 MiB", "14.62 GiB", "3.00 MiB", "14.42 GiB", "20.00 MiB"), 1,
	 "tensor_parallel_size", "gpu_memory_utilization lower", NULL, "14.42 / 14.62: no share leaves a cache as much"},
	{"own", "HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 15.92 GiB of which 0 bytes is free.\n", 1, "rocm-smi", NULL, NULL, "next to nothing was asked for, and nobody says whose the card is"},
	{"own", AT("own.py", "run", "wrapper.align(cuda=True)") "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 146.00 MiB.\nGPU 0 has a total capacity of 8.00 GiB of which 0 bytes is free.\n", 2,
	 "nvidia-smi", NULL, NULL, "a message that was cut before it says so"},
	{"ollama#6860", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144.00 MiB on device 4: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA4 buffer of size "
			"150995968\nllama_new_context_with_model: failed to allocate compute buffers\n", 1,
	 "-ts", NULL, NULL, "the smaller card of several"},
	{"ik_llama.cpp#749", "llama_kv_cache_init:      CUDA0 KV buffer size =   380.00 MiB\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 279356.51 MiB on device 0: cudaMalloc failed: out of memory\n"
			     "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 292926534144\n", 1,
	 "-fa", NULL, NULL, "half of 279 GB is no less beyond"},
	{"axolotl#1717", "[rank1]: " TRACE AT("/u/axolotl/cli/train.py", "<module>", "main()") AT("/l/torch/nn/modules/module.py", "convert", "return t.to(")
			 AT("/l/bitsandbytes/nn/modules.py", "to", "super().to(device=device, dtype=dtype)")
			 NEW("112.00 MiB", "23.68 GiB", "60.00 MiB", "23.10 GiB", "60.00 MiB"), 1,
	 "fsdp_config (cpu_ram_efficient_loading: true)", "device_map", NULL, "a device map is no way to train"},
	{"LLamaTuner#91", TRACE AT("finetune_with_qlora.py", "<module>", "model = AutoModelForCausalLM.from_pretrained(p)")
			  AT("/l/bitsandbytes/functional.py", "quantize_4bit", "out = torch.zeros(((n+1)//2, 1), dtype=torch.uint8, device=A.device)") OLD("112.00 MiB", "39.45 GiB", "4.00 GiB", "95.00 MiB", "4.04 GiB"), 2,
	 "ranks of this run", NULL, NULL, "weights that every rank reads to the first card look like others'"},
	{"sglang#465", TRACE AT("/l/sglang/srt/models/llama2.py", "__init__", "self.p = MergedColumnParallelLinear(n)") AT("/l/vllm/model_executor/layers/linear.py", "create_weights", "w = torch.empty(n)")
		       "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU \n", 1,
	 "--tp", "tensor_parallel_size", NULL, "vLLM's layers inside of SGLang"},
	{"oom_traces 008", AT("/l/segmentation_models_pytorch/unet/decoder.py", "forward", "x = torch.cat([x, skip], dim=1)") OLD("36.00 MiB", "2.00 GiB", "230.00 MiB", "0 bytes", "260.00 MiB"), 1,
	 "nvidia-smi", NULL, NULL, "1.75 of 2 GiB are not this program's"},
	{"oom_traces 015", AT("/l/torch/autograd/__init__.py", "backward", "allow_unreachable=True)") OLD("844.00 MiB", "14.76 GiB", "9.70 GiB", "500.00 MiB", "10.15 GiB"), 5,
	 "if another program holds", NULL, NULL, "4.1 GiB beside PyTorch's, for want of 344 MiB"},
	{"oom_traces_2 023", "OutOfMemoryError: CUDA out of memory. Tried to allocate 10.70 GiB. GPU 0 has a total capacity of 47.53 GiB of which 7.80 GiB is free. Of the allocated memory 20.50 GiB is allocated by "
			     "PyTorch, with 12.00 GiB allocated in private pools (e.g., CUDA Graphs), and 18.60 GiB is reserved by PyTorch but unallocated.\n", 1,
	 "fewer CUDA graphs", NULL, NULL, "idle memory of recorded graphs is joined by no setting"},
	{"oom_traces_2 086", "E tensorflow/stream_executor/rocm/rocm_driver.cc:601] failed to allocate 7.35G (7889485824 bytes) from device: hipError_t(1002)\n", 1, "rocm-smi", "nvidia-smi", NULL, "an AMD card"},
	{"oom_traces_2 013", "[rank2]:   File \"/l/torch/nn/functional.py\", line 3504, in cross_entropy\n[rank2]:     return torch._C._nn.cross_entropy_loss(\n[rank2]:            ~~~~~~~~~~~~~~~~^\n[rank2]:         input,\n"
			     "[rank2]:         ^^^^^^\n[rank2]:     ...<5 lines>...\n[rank2]:     )\n[rank2]:     ^\n[rank2]: " NEW("18.80 GiB", "39.38 GiB", "280.00 MiB", "35.60 GiB", "2.30 GiB")
			     "[rank0]:   File \"/u/train_lora_qwen.py\", line 340, in <module>\n", 1,
	 "logits of the whole batch", "8-bit", "the logits", "a call that Python 3.13 shows over many lines; a script of LoRA has small states"},
	{"oom_traces 012", "| WARNING: attempting to recover from OOM in forward/backward pass\n| WARNING: OOM in all workers, skipping update\n" OLD("62.00 MiB", "15.90 GiB", "14.60 GiB", "10.00 MiB", "15.20 GiB"), 1,
	 "--max-source-positions", NULL, NULL, "only some batches do not fit: the longest"},
	{"oom_traces 031", AT("/h/custom_offloading_utils.py", "weighs_to_device", "module.weight.data = module.weight.data.to(device)") "RuntimeError: CUDA error: out of memory\n", 6,
	 "", "shorter inputs", "asked for by weights", "a weight's data are no data"},
	{"oom_traces_2 107", "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 1.61 GiB for an array with shape (753, 536, 536) and data type float64\n", 1,
	 "dtype float32", NULL, NULL, "NumPy's default takes twice as much"},
	/* ---- sizes that say what they are ---- */
	{"oom_traces_2 055", "ResourceExhaustedError: OOM when allocating tensor with shape[3,3,2560,1280] and type float on device:GPU:0 by allocator GPU_0_bfc [Op:AddV2]\n", 6,
	 "", NULL, "convolution's weights", "a kernel of 3 x 3, no image"},
	/* 8.52 x 2^30 / 4 = 2287 M, three times 8.52 */
	{"DeepSpeed#237", TRACE AT("/l/deepspeed/pt/deepspeed_zero_optimizer.py", "initialize_optimizer_states", "self.optimizer.step()")
			  AT("/l/apex/optimizers/fused_adam.py", "step", "state['exp_avg'] = torch.zeros_like(p.data)") OLD("8.52 GiB", "31.72 GiB", "25.60 GiB", "5.40 GiB", "25.61 GiB"), 1,
	 "offload_optimizer", "stage 1 or 2", "2287 M parameters of this rank", "one state of a flat partition"},
	{"oom_traces 061", "ValueError: Ran out of memory in memory space hbm. Used 16.29G of 15.75G hbm.\nValueError: Allocation (size=21474836480) would exceed memory (size=17179869184) :: #allocation1 [shape = "
			   "'f32[320,4096,4096]{1,2,0}', space=hbm]\n", 6, "", NULL, "20.00GiB, f32[320,4096,4096]", "320 x 4096 x 4096 x 4 bytes"},
	{"oom_traces_2 075", "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.24GiB. [executable_name='jit_f']\n", 1,
	 "jax.lax.map", "if it was not training", "all temporaries of a compiled program in one piece", "XLA's allocation is the program's, one line for both kinds of work"},
	/* 123008 x 500 x 4 bytes */
	{"tensor2tensor#782", "ResourceExhaustedError: OOM when allocating tensor with shape[123008,500]\n\t [[Node: training_10/Adam/mul_23 = Mul[T=DT_FLOAT]]]\n", 1,
	 "a smaller layer of that shape", NULL, "234.6 MiB", "a weight's shape, whatever the batch"},
	/* ---- programs that have their own words ---- */
	{"ColossalAI#5030", "torchrun --standalone --nproc_per_node 8 finetune.py --plugin gemini_auto --batch_size 2\n" TRACE AT("/w/colossalai/zero/gemini/gemini_optimizer.py", "step", "ret = self.optim.step()")
			    OLD("2.00 GiB", "79.21 GiB", "75.40 GiB", "1.74 GiB", "76.12 GiB"), 1,
	 "offload_optim_frac", "bitsandbytes", NULL, "its maintainers' first word: states to the host"},
	{"ColossalAI#3509", TRACE AT("/w/examples/train_sft.py", "train", "trainer.fit(logger=logger)") AT("/w/coati/trainer/sft.py", "fit", "self.strategy.optimizer_step(self.optimizer)")
			    AT("/w/colossalai/zero/sharded_optim/low_level_optim.py", "step", "self._master_params[group] = fp32") OLD("3.12 GiB", "23.70 GiB", "22.00 GiB", "292.56 MiB", "22.29 GiB"), 6,
	 "LowLevelZeroPlugin(cpu_offload=True)", "batch_size lower", NULL, "activations are gone when states are made"},
	{"llama-recipes#714", TRACE AT("/w/llama_recipes/finetuning.py", "main", "results = train(") AT("/w/llama_recipes/utils/train_utils.py", "train", "loss.backward()")
			      NEW("1.21 GiB", "79.10 GiB", "708.50 MiB", "75.62 GiB", "1.30 GiB"), 1,
	 "batch_size_training", "gradient_checkpointing_enable", NULL, "its configuration's own names"},
	{"litgpt#592", TRACE AT("/w/litgpt/finetune/full.py", "fit", "fabric.backward(loss / gradient_accumulation_iters)") NEW("250.00 MiB", "79.10 GiB", "190.50 MiB", "76.11 GiB", "1.95 GiB"), 1,
	 "--train.micro_batch_size", "Trainer(", NULL, "Fabric has no Trainer"},
	{"WhisperJAV", "own.mp4 - whisperjav - ERROR - Failed: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 0 bytes is free. Of the allocated memory 3.27 GiB is "
		       "allocated by PyTorch, and 257.08 MiB is reserved by PyTorch but unallocated.\n", 1,
	 "a smaller model", NULL, NULL, "what lies outside is no more than a context, and 20 MiB are no batch"},
	{"Detectron#560", TRACE AT("/d/lib/utils/train.py", "create_model", "workspace.RunNetOnce(model.param_init_net)")
			  "RuntimeError: [enforce fail at event_gpu.cc:17] error == cudaSuccess. 2 vs 0. Error at: /c/core/event_gpu.cc:17: out of memory\n", 1,
	 "nvidia-smi", "8-bit", NULL, "no sizes before any work: who else is there is the first question"},
	{"cxr-clip#4", "Epoch 3:  89%|####| 12172/13725 [4:44:35<35:03,  1.35s/it, loss=0.975784]\n"
		       "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 1543461) of binary: /own/bin/python\n", 1,
	 "DataLoader workers", "if a model was being loaded", NULL, "12172 steps ran since its model was read"},
};

static void test_levers(void **state)
{
	(void)state;
	crash_all_met(want, sizeof(want) / sizeof(want[0]));
}

/* What a card before Ampere computes: the caller, who knows the cards of that size, says so. */
static void test_old_card(void **state)
{
	static const char text[] = "train.py\n" TRACE AT("train.py", "<module>", "loss.backward()") NEW("800.00 MiB", "14.75 GiB", "400.00 MiB", "13.90 GiB", "50.00 MiB");
	struct oom_crash_answer a;
	struct oom_crash c;

	(void)state;
	assert_true(oom_crash_decode(text, sizeof(text) - 1, &c));
	assert_false(c.before_bf16);
	oom_crash_answer(&c, &a);
	assert_true(among(&a, 4, "dtype=torch.bfloat16"));
	c.before_bf16 = true;
	oom_crash_answer(&c, &a);
	assert_true(among(&a, 4, "dtype=torch.float16"));
	assert_true(among(&a, 4, "has no bfloat16"));
}

/* No answer is longer than the levers that somebody reads; those that the text itself asks for may come on top. */
static void test_four(void **state)
{
	static const char text[] = "train.py\n" TRACE AT("/l/transformers/trainer.py", "training_step", "self.accelerator.backward(loss)")
				   NEW("800.00 MiB", "79.10 GiB", "400.00 MiB", "77.00 GiB", "50.00 MiB");
	struct oom_crash_answer a;
	struct oom_crash c;

	(void)state;
	assert_true(oom_crash_decode(text, sizeof(text) - 1, &c));
	oom_crash_answer(&c, &a);
	assert_int_equal(a.n_fix, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_levers), cmocka_unit_test(test_old_card), cmocka_unit_test(test_four)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
