/* What the run has already and what the frames show it asked for, by signs other than its options: the advice is for the
 * state that it is in. Texts in our own words after forms met in public threads (named per row); the expectations were
 * written before the decoder saw the text the row is after. */
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
#define PIECES "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 12.00 GiB of which 500.00 MiB " \
	       "is free. Of the allocated memory 9.00 GiB is allocated by PyTorch, and 2.40 GiB is reserved by PyTorch but unallocated.\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"

static const struct {
	const char *after, *text;
	size_t within;          /* among so many of the first fixes */
	const char *first;
	const char *never;      /* NULL: not asked */
	enum oom_crash_phase phase;
	const char *reason;
} want[] = {
	/* ---- what it has ---- */
	{"axolotl#1522", "micro_batch_size: 1\nload_in_4bit: true\nfsdp:\n  - full_shard\n" TRACE AT("/l/axolotl/train.py", "train", "trainer.train()")
			 AT("/l/torch/distributed/fsdp/_init_utils.py", "_init_param_handle_from_module", "_move_module_to_device(") FULL, 6,
	 "more GPUs", "ZeRO-3 (TrainingArguments", OOM_CRASH_INIT, "FSDP is on"},
	{"transformers#46822", TRACE AT("/l/transformers/modeling_utils.py", "from_pretrained", "model._initialize_missing_keys(q)")
			       AT("/l/deepspeed/runtime/zero/partition_parameters.py", "__enter__", "self.params[0].all_gather(param_list=self.params)") FULL, 6,
	 "more GPUs", "zero_optimization stage 3", OOM_CRASH_LOAD, "stage 3 is what gathers"},
	{"own", "{\"train_micro_batch_size_per_gpu\": 4, \"fp16\": {\"enabled\": true}}\n" TRACE AT("f.py", "<module>", "model_engine.backward(loss)")
		AT("/l/deepspeed/runtime/engine.py", "backward", "self.optimizer.backward(loss)") FULL, 6,
	 "train_micro_batch_size_per_gpu 4 -> 2", "bf16", OOM_CRASH_BACKWARD, "DeepSpeed's way to switch it on"},
	{"the same", "{\"train_micro_batch_size_per_gpu\": 4, \"fp16\": {\"enabled\": false}}\n" TRACE AT("f.py", "<module>", "model_engine.backward(loss)")
		     AT("/l/deepspeed/runtime/engine.py", "backward", "self.optimizer.backward(loss)") FULL, 6,
	 "bf16: {enabled: true}", NULL, OOM_CRASH_BACKWARD, "and off"},
	/* ---- what was asked for ---- */
	{"own", TRACE AT("f.py", "<module>", "model_engine.backward(loss)")
		AT("/l/deepspeed/runtime/zero/stage_1_and_2.py", "backward", "buf_0 = torch.empty(int(self.reduce_bucket_size), dtype=self.dtype)") FULL, 1,
	 "reduce_bucket_size", NULL, OOM_CRASH_BACKWARD, "a buffer whose size is set"},
	{"own", "llama_context: n_ctx         = 131072\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of "
		"memory\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 17179869184\nllama_init_from_model: failed to initialize the context: failed to "
		"allocate buffer for kv cache\n", 1,
	 "-c 131072 -> 65536", NULL, OOM_CRASH_INIT, "the same function allocates weights and cache"},
	{"own", TRACE AT("/l/torchtune/modules/transformer.py", "unembed", "output = self.output(h).float()") FULL, 1, "LinearCrossEntropyLoss", NULL, OOM_CRASH_FORWARD,
	 "logits by their function"},
	{"own", TRACE AT("/l/pytorch_lightning/trainer.py", "fit", "self._run()") AT("fit.py", "training_step", "results = self(rays)") AT("m.py", "forward", "h = self.f(x)") FULL, 1,
	 "rays at once", NULL, OOM_CRASH_FORWARD, "a scene, no sequence"},
	{"mmdetection#9616", TRACE AT("/l/mmengine/runner/loops.py", "run", "self.run_iter(b)")
			     AT("/l/mmdet/models/dense_heads/rtmdet_ins_head.py", "loss_mask_by_feat", "x = torch.cat(x, 0)") FULL, 1,
	 "train_dataloader.batch_size", "if it was", OOM_CRASH_FORWARD, "a loss is of a training"},
	{"mmdetection#6054", TRACE AT("tools/test.py", "main", "outputs = single_gpu_test(model, loader)")
			     AT("/l/mmdet/models/roi_heads/mask_heads/fcn_mask_head.py", "_do_paste_mask", "m = F.grid_sample(masks, grid)") PIECES, 2,
	 "scale up less at once", NULL, OOM_CRASH_EVAL, "masks of the image's size"},
	{"mmdetection#5449", TRACE AT("/l/mmdet/core/evaluation/eval_hooks.py", "after_train_epoch", "results = single_gpu_test(m, d)")
			     AT("/l/mmdet/models/detectors/two_stage.py", "simple_test", "x = self.extract_feat(img)") FULL, 1,
	 "smaller image scale", NULL, OOM_CRASH_EVAL, "its forward pass, nothing is joined"},
	{"own", "Warning: Ran out of memory when regular VAE decoding, retrying with tiled VAE decoding.\n" TRACE
		AT("/u/ComfyUI/comfy/sd.py", "decode", "pixel_samples = self.decode_tiled_3d(samples_in)") "torch.OutOfMemoryError: Allocation on device\n", 1,
	 "smaller tile_size", NULL, OOM_CRASH_INFERENCE, "tiles that are too large"},
	{"own", TRACE AT("train.py", "train_epoch", "y = model(ids)")
		AT("/l/transformers/models/bert/modeling_bert.py", "forward", "attention_scores = torch.matmul(q, k.transpose(-1, -2))") FULL, 1,
	 "attn_implementation", NULL, OOM_CRASH_FORWARD, "the library's own option, whoever calls it"},
	{"own", TRACE AT("tune.py", "<module>", "out = model(input_ids=ids, labels=input_ids)")
		AT("/l/transformers/models/llama/modeling_llama.py", "forward", "logits = logits.float()") FULL, 2,
	 "micro-batch", "if it was", OOM_CRASH_FORWARD, "who gives labels computes a loss"},
	{"own", TRACE AT("/l/lightning/pytorch/strategies/strategy.py", "training_step", "return m.training_step(*a)")
		AT("/l/torch/distributed/fsdp/_flat_param.py", "_alloc_padded_unsharded_flat_param", "_alloc_storage(p, n)") FULL, 1,
	 "auto_wrap_policy", NULL, OOM_CRASH_TRAIN_STEP, "one block at a time, by Lightning's option"},
	/* 40 x 1 byte = 37.3 GiB of 39.5 */
	{"own", TRACE AT("app.py", "<module>", "m = AutoModelForCausalLM.from_pretrained(\"o/falcon-40b\", load_in_8bit=True, device_map=\"auto\")")
		AT("/l/transformers/modeling_utils.py", "_load_pretrained_model", "x = _load_state_dict_into_meta_model(") FULL, 2,
	 "4 bits in place of 8", "bfloat16", OOM_CRASH_LOAD, "8 bits are half of 16"},
	{"HunyuanVideo#299", "torchrun --nproc_per_node=8 sample.py --video-length 129 --infer-steps 10 --embedded-cfg-scale 6.0\n" FULL, 1, "--use-cpu-offload", NULL, OOM_CRASH_INFERENCE,
	 "by its own options"},
	{"textgen#5306", TRACE AT("/u/text-generation-webui/modules/models.py", "load_model", "output = load_func_map[loader](name)")
			 AT("/l/exllamav2/moe_mlp.py", "load", "self.w3[e].load()") FULL, 2,
	 "exl2", "BitsAndBytes", OOM_CRASH_LOAD, "what it loads is quantised"},
	{"IsaacGymEnvs#256", "+++ Using GPU PhysX\nPxgCudaDeviceMemoryAllocator fail to allocate memory 100663296 bytes!! Result = 2\n", 2, "num_envs", "smaller problem", OOM_CRASH_UNKNOWN,
	 "PhysX's own wording is one"},
	{"axolotl#3181", "base_model: unsloth/gemma-3-270m\nsequence_len: 4096\nrl: dpo\n$ axolotl train g.yml\n" TRACE
			 AT("/w/axolotl/src/axolotl/train.py", "execute_training", "trainer.train(resume_from_checkpoint=r)")
			 AT("/l/trl/trainer/dpo_trainer.py", "concatenated_forward", "per_token_logps = selective_log_softmax(logits, labels)") FULL, 6,
	 "gradient_checkpointing: true", "UNSLOTH", OOM_CRASH_FORWARD, "who made the weights is not who runs"},
	{"the same", TRACE AT("train.py", "<module>", "trainer.train()") AT("/w/unsloth/models/llama.py", "LlamaModel_fast_forward", "h = layer(h)") FULL, 6,
	 "max_seq_length", NULL, OOM_CRASH_FORWARD, "a path of the model's files is no model's name"},
	{"exllamav3#50", TRACE AT("/l/exllamav3/model/model_ls.py", "load_gen", "raise RuntimeError(\"Insufficient VRAM in split for model and cache\")")
			 "RuntimeError: Insufficient VRAM in split for model and cache\n", 1,
	 "max_seq_len", NULL, OOM_CRASH_LOAD, "exllamav3's own words"},
	{"cudf#6785", TRACE AT("/l/xgboost/data.py", "_from_cudf_df", "ctypes.byref(handle)))")
		      "XGBoostError: device_helpers.cuh:400: Memory allocation error on worker 0: std::bad_alloc: CUDA error: cudaErrorMemoryAllocation out of memory\n"
		      "- Free memory: 5177344\n- Requested memory: 1840021504\n", 1,
	 "QuantileDMatrix", "DataLoader", OOM_CRASH_DATA, "it has no workers"},
	{"stable-baselines3#885", TRACE AT("/l/stable_baselines3/common/off_policy_algorithm.py", "_setup_model", "self.replay_buffer = DictReplayBuffer(")
				  "numpy.core._exceptions.MemoryError: Unable to allocate 966. GiB for an array with shape (500000, 1, 3, 960, 720) and data type uint8\n", 1,
	 "buffer_size", NULL, OOM_CRASH_DATA, "who knows what the array is says how it gets smaller"},
	{"sentence-transformers#1717", TRACE AT("/l/sentence_transformers/SentenceTransformer.py", "_eval_during_training", "score = evaluator(self)")
				       AT("/l/sentence_transformers/evaluation/EmbeddingSimilarityEvaluator.py", "__call__", "e = model.encode(s)") FULL, 1,
	 "batch_size of the evaluator", "eval_accumulation_steps", OOM_CRASH_EVAL, "fit() has no settings of the Trainer"},
	{"DMM#3", TRACE AT("train_dmm.py", "main", "loss = dmm_net(x)")
		  AT("/w/utils/math.py", "compute_gradient", "grad = torch.autograd.grad(y, [x], grad_outputs=g, create_graph=True)[0]") FULL, 6,
	 "micro-batch", "neighbours", OOM_CRASH_BACKWARD, "autograd's graph is no data"},
	/* ---- devices and programs without such a thing ---- */
	{"rl-swarm#355", TRACE AT("/l/trl/trainer/grpo_trainer.py", "_get_per_token_logps", "logits = logits / self.temperature")
			 "RuntimeError: MPS backend out of memory (MPS allocated: 12.74 GB, other allocations: 4.39 GB, max allowed: 18.13 GB). Tried to allocate 1.02 GB on "
			 "private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).\n", 6,
	 "per_device_train_batch_size", "liger", OOM_CRASH_FORWARD, "kernels of Triton have no Metal"},
	{"stable-diffusion-webui#13891", "RuntimeError: [enforce fail at ..\\c10\\core\\impl\\alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you tried to "
					 "allocate 66846720 bytes.\napp: stable-diffusion-webui.git\n", 1,
	 "page file", "replay buffer", OOM_CRASH_UNKNOWN, "pictures have no replay buffer"},
	{"MARL-Algorithms#61", TRACE AT("runner.py", "run", "b = self.buffer.sample(n)") AT("common/replay_buffer.py", "sample", "t[k] = self.buffers[k][i]")
			       "numpy.core._exceptions.MemoryError: Unable to allocate 27.5 MiB for an array with shape (32, 400, 282) and data type float64\n", 1,
	 "replay buffer", NULL, OOM_CRASH_DATA, "what is drawn from a buffer is data"},
};

static void test_state(void **state)
{
	int bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash c;
		struct oom_crash_answer a;

		assert_true(oom_crash_decode(want[i].text, strlen(want[i].text), &c));
		oom_crash_answer(&c, &a);
		if (!among(&a, want[i].within, want[i].first)) {
			print_error("%s (%s): \"%s\" is not among the first, which begin with \"%s\"\n", want[i].after, want[i].reason, want[i].first, a.fix[0]);
			bad++;
		}
		if (want[i].never && among(&a, OOM_ANSWER_FIXES, want[i].never)) {
			print_error("%s (%s): \"%s\" is offered\n", want[i].after, want[i].reason, want[i].never);
			bad++;
		}
		if (c.phase != want[i].phase) {
			print_error("%s (%s): phase %s\n", want[i].after, want[i].reason, oom_crash_phase_str(c.phase));
			bad++;
		}
	}
	assert_int_equal(bad, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_state)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
