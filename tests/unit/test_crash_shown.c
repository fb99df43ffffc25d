/* Answers to texts whose frames, files and commands show what is on already, whose program it is and what its options are
 * called. Texts of our own in the form of public threads; words that one of the first fixes must hold, that none may,
 * that the evidence holds or may not hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

#include "crash_wants.h"
#include "oomplan/diagnose.h"

#define OLD(tried, total, held, left, reserved) "CUDA out of memory. Tried to allocate " tried " (GPU 0; " total " total capacity; " held " already allocated; " left " free; " reserved " reserved in total by PyTorch)\n"
#define CARD OLD("600.00 MiB", "23.70 GiB", "21.90 GiB", "300.00 MiB", "22.10 GiB")
#define NEW "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 600.00 MiB. GPU 0 has a total capacity of 23.68 GiB of which 300.00 MiB is free. Including non-PyTorch memory, this " \
	    "process has 23.37 GiB memory in use. Of the allocated memory 22.50 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.\n"
#define AT(file, function, code) "  File \"" file "\", line 7, in " function "\n    " code "\n"
#define TRACE "Traceback (most recent call last):\n"
#define BACKWARD AT("/l/torch/_tensor.py", "backward", "torch.autograd.backward(")

static const struct {
	const char *text;
	size_t within;                  /* among so many of the first fixes */
	const char *first, *never;      /* NULL: not asked */
	const char *evidence, *not_said;
	const char *program;
	enum oom_crash_phase phase;
	const char *reason;
} want[] = {
	/* ---- frames show what is on ---- */
	{TRACE AT("fit.py", "step", "loss.backward()") BACKWARD AT("/l/torch/utils/checkpoint.py", "backward", "torch.autograd.backward(outputs_with_grad, args_with_grad)") "RuntimeError: " CARD, 1,
	 "halve the micro-batch", "recompute", "set already, so not advised again: gradient checkpointing", NULL, "", OOM_CRASH_BACKWARD, "a recomputed block's backward pass"},
	{TRACE "  File \"C:\\w\\fit.py\", line 3, in step\n    y = net(x)\n  File \"C:\\l\\torch\\utils\\checkpoint.py\", line 9, in checkpoint\n    ret = function(*args)\n"
	 "  File \"C:\\w\\net.py\", line 4, in forward\n    return self.conv(x)\nRuntimeError: " CARD, 6, "halve the micro-batch", "torch.utils.checkpoint", "gradient checkpointing", NULL, NULL,
	 OOM_CRASH_FORWARD, "the same on Windows"},
	{TRACE AT("/l/transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)") AT("/l/transformers/models/qwen2/modeling_qwen2.py", "forward",
	 "layer_outputs = self._gradient_checkpointing_func(") AT("/l/transformers/integrations/sdpa_attention.py", "sdpa_attention_forward", "return attn(q)") NEW, 6, "use_liger_kernel",
	 "gradient_checkpointing=True", "gradient checkpointing", NULL, "trainer", OOM_CRASH_FORWARD, "transformers calls it where it is on alone"},
	{"[INFO] Creating fp16 ZeRO stage 2 optimizer\n" TRACE AT("pretrain_gpt.py", "setup", "engine = deepspeed.initialize(model=m)") AT("/l/deepspeed/runtime/zero/stage_1_and_2.py",
	 "initialize_optimizer_states", "self.optimizer.step()") "RuntimeError: " CARD, 6, "offload_optimizer", "--bf16", "16-bit training", NULL, "megatron-deepspeed", OOM_CRASH_INIT,
	 "the engine says in which type"},
	/* ---- DeepSpeed's states ---- */
	{TRACE AT("run.py", "main", "trainer.train()") AT("/l/transformers/trainer.py", "_inner_training_loop", "engine, optimizer, _ = deepspeed_init(self)") AT("/l/deepspeed/runtime/zero/stage3.py",
	 "initialize_optimizer_states", "buffer = torch.zeros(n, device=self.device)") "RuntimeError: " CARD, 1, "offload_optimizer: {device: cpu}", "bnb", NULL, NULL, "trainer", OOM_CRASH_INIT,
	 "bitsandbytes' optimizers are not ZeRO's"},
	{TRACE AT("/l/deepspeed/runtime/engine.py", "_configure_zero_optimizer", "optimizer = DeepSpeedZeroOptimizer_Stage3(") AT("/l/deepspeed/accelerator/cuda_accelerator.py", "pin_memory",
	 "return tensor.pin_memory()") "RuntimeError: CUDA error: out of memory\n", 1, "pin_memory: false in offload_optimizer", "reads the whole model", NULL, NULL, "deepspeed", OOM_CRASH_INIT,
	 "page-locked memory is no second copy of weights"},
	/* ---- whose file it is ---- */
	{"Training goes OOM\n\nbase_model: some/model\nsequence_len: 4096\nval_set_size: 0.1\nmicro_batch_size: 2\n" NEW, 1, "micro_batch_size 2 -> 1", NULL, NULL, NULL, "axolotl",
	 OOM_CRASH_TRAIN_STEP, "keys that only Axolotl's files have"},
	{"CUDA out of memory during evaluation\n\nmicro_batch_size: 1\nsequence_len: 2048\ndo_causal_lm_eval: true\neval_batch_size: 8\n", 1, "eval_batch_size 8 -> 1", "bf16_full_eval", NULL, NULL,
	 "axolotl", OOM_CRASH_EVAL, "lm_eval within a name; a training's batch of one is not its evaluation's"},
	{"base_model: some/model\nsequence_len: 8192\nsample_packing: true\nmicro_batch_size: 1\ngradient_checkpointing: true\n- Enabling gradient checkpointing\n" NEW, 6, "sequence_len 8192 -> 4096",
	 "longest", NULL, NULL, "axolotl", OOM_CRASH_TRAIN_STEP, "packed batches have no longest; recomputing is no saving"},
	{"cutoff_len: 16384\nfinetuning_type: full\nper_device_train_batch_size: 4\ndeepspeed: ds_z3_config.json\n" NEW, 6, "cutoff_len 16384 -> 8192", "bnb", NULL, NULL, "llamafactory",
	 OOM_CRASH_TRAIN_STEP, "a long length is worth a word while there is a batch to halve"},
	/* ---- examples/ of Diffusers, and sd-scripts ---- */
	{"accelerate launch train_text_to_image_lora.py --resolution=512 --train_batch_size=1\n" TRACE AT("train_text_to_image_lora.py", "main", "accelerator.backward(loss)")
	 AT("/l/accelerate/accelerator.py", "backward", "loss.backward(**kwargs)") "RuntimeError: " CARD, 4, "--enable_xformers_memory_efficient_attention", "--blocks_to_swap", NULL, NULL, "diffusers-scripts", OOM_CRASH_BACKWARD,
	 "options of sd-scripts are not theirs"},
	{"accelerate launch train_controlnet_sdxl.py --validation_steps=100 --train_batch_size=1\nIt goes out of memory during validation on one card.\nCUDA out of memory\n", 1,
	 "fewer validation images", "bf16_full_eval", NULL, NULL, "diffusers-scripts", OOM_CRASH_EVAL, "its validation draws images"},
	{TRACE AT("sd-scripts/train_network.py", "train", "accelerator.backward(loss)") "RuntimeError: " CARD, 6, "--xformers or --sdpa", NULL, NULL, NULL, "kohya", OOM_CRASH_BACKWARD, "sd-scripts keep their own"},
	/* ---- what is said beside the answer ---- */
	{"RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.\n" TRACE AT("fit.py", "loss_of", "box = torch.zeros(4)") AT("/l/torch/utils/data/_utils/signal_handling.py", "handler",
	 "_error_if_any_worker_fails()") "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.\n", 1, "fewer processes", NULL, NULL, "the line that led to it", NULL, OOM_CRASH_DATA,
	 "a handler's frames are where the program happened to be"},
	{"RuntimeError: " CARD "\nI looked at it while training: calling backward frees the graph.\n", 1, "halve the micro-batch", NULL, NULL, "goes on behind it", NULL, OOM_CRASH_TRAIN_STEP,
	 "\"calling back\" is no falling back"},
	{"Validation is where it fails\n|   0  GeForce GTX 1080    Off  | 00000000:01:00.0  On |                  N/A |\n| 58%   70C    P2    67W / 200W |   8108MiB /  8111MiB |     25%      Default |\n"
	 TRACE AT("fit.py", "evaluate", "out = model(batch)") AT("net.py", "forward", "return self.conv(x)") "RuntimeError: CUDA error: out of memory\n", 1, "validation images one at a time", NULL, NULL, NULL,
	 NULL, OOM_CRASH_EVAL, "a run at work fills the card itself, whatever nvidia-smi shows"},
	{"RuntimeError: " OLD("20.00 MiB", "4.00 GiB", "1.30 GiB", "0 bytes", "1.40 GiB") "My graphics card has 4 GB. Batch size is 1.\n", 1, "images", "end that process", "2.60 GiB of the card are neither free",
	 NULL, NULL, OOM_CRASH_UNKNOWN, "nothing free to the byte is Windows' report of any card in use, and graphics are no graph"},
	/* ---- adapters, sizes and cards in people's words ---- */
	{"I get OOM in LoRA fine-tuning on two cards\n" TRACE AT("tune.py", "main", "out = model(**batch)") AT("/l/transformers/models/llama/modeling_llama.py", "forward", "y = self.mlp(x)") "RuntimeError: " CARD, 6,
	 "quantised", "optimizer state", NULL, NULL, NULL, OOM_CRASH_FORWARD, "adapters have next to no states"},
	{"I get OOM in full fine-tuning where LoRA works\n" TRACE AT("tune.py", "main", "loss = model(**batch).loss") AT("/l/transformers/models/llama/modeling_llama.py", "forward", "y = self.mlp(x)") "RuntimeError: " CARD,
	 6, "smaller optimizer state", "quantised", NULL, NULL, NULL, OOM_CRASH_FORWARD, "what works is not what ran"},
	{"FSDP training of a 13B model on 4 x 3090\n" TRACE AT("sft.py", "main", "trainer.train()") AT("/l/transformers/trainer.py", "training_step", "self.accelerator.backward(loss)")
	 AT("/l/torch/distributed/fsdp/_runtime_utils.py", "_post_backward_hook", "_post_backward_reshard(state, handle)") NEW, 1, "optim=", "full_shard", "13 B parameters, by the model's name, x 16 bytes",
	 NULL, "trainer", OOM_CRASH_BACKWARD, "13e9 x 16 / 4 = 48.4 GiB a card"},
	{"A 7B student and a 70B teacher in one training\n" TRACE AT("sft.py", "main", "loss.backward()") BACKWARD "RuntimeError: " CARD, 6, "halve the micro-batch", NULL, NULL, "B parameters", NULL,
	 OOM_CRASH_BACKWARD, "two sizes are none"},
	{TRACE AT("run.py", "main", "trainer.evaluate()") "[/l/transformers/trainer_pt_utils.py](x) in torch_pad_and_concatenate(a, b)\n---> 88     result = a.new_full(shape, i)\nOutOfMemoryError: " CARD, 1,
	 "eval_accumulation_steps", NULL, NULL, NULL, "trainer", OOM_CRASH_EVAL, "the Trainer's helpers are the Trainer"},
	{"With torchtune on eight cards\n[rank1]:   File \"/l/torch/distributed/_composable/fsdp/_fsdp_param_group.py\", line 7, in pre_forward\n[rank1]:     self.wait_for_unshard()\n[rank1]: " NEW, 6,
	 "enable_activation_checkpointing", "full_finetune_distributed", NULL, NULL, "torchtune", OOM_CRASH_FORWARD, "sharded already, whatever the name of FSDP's package"},
	/* ---- states are made when activations are gone ---- */
	{TRACE AT("fit.py", "step", "optimizer.step()") AT("/l/torch/optim/adamw.py", "_init_group", "state[\"exp_avg_sq\"] = torch.zeros_like(") "RuntimeError: " CARD, 2, "8-bit", "micro-batch", NULL, NULL,
	 NULL, OOM_CRASH_OPTIMIZER, "no batch is small enough for states"},
	/* ---- what is read, what came after, what the message itself says ---- */
	{"[INFO] Attempting to resume from run/checkpoint-22\n[INFO] [launch.py:178:sigkill_handler] Killing subprocess 97\n[ERROR] [launch.py:184] ['python', 'fit.py', '--deepspeed', 'ds.json'] exits with return code = -9\n",
	 1, "reads the whole model", "stage3_gather", NULL, NULL, NULL, OOM_CRASH_LOAD, "who resumes from a checkpoint writes none"},
	{"Segmenting with monailabel\nAfter training, a click on RUN gives me an OOM error. I tried a smaller `roi_size`, and still get:\ntorch.cuda.OutOfMemoryError: "
	 OLD("8.25 GiB", "7.92 GiB", "440.00 MiB", "6.60 GiB", "470.00 MiB"), 3, "sliding_window_inference", "micro-batch", "tried without success, by the text: smaller inputs", "allocator settings, ", "monai",
	 OOM_CRASH_UNKNOWN, "what came after the training was none; the allocator's advice was not tried"},
	{"[rank1]: /w/my_net/net.py:475 in forward\n[rank1]: \xe2\x94\x82 \xe2\x9d\xb1  475 \xe2\x94\x82   y = self.dense(x)\n[rank1]: OutOfMemoryError: " CARD, 6, "halve the micro-batch", NULL,
	 "in forward: y = self.dense(x)", NULL, NULL, OOM_CRASH_FORWARD, "a box behind a rank"},
	/* ---- which message counts ---- */
	{TRACE AT("/l/net.py", "forward", "return x * mask") "RuntimeError: " OLD("71.00 GiB", "23.70 GiB", "4.00 GiB", "17.00 GiB", "4.30 GiB") "While training, a CUDA out of memory error appears as above.\n", 1,
	 "make that one tensor smaller", NULL, "3.0 times what there is", NULL, NULL, OOM_CRASH_FORWARD, "who repeats its first words below it adds no message"},
	/* ---- whose frames, whose card ---- */
	{"Saving to GGUF\nFile ~/l/unsloth/save.py:152, in _merge_lora(layer, name)\n--> 152 W = W.to(torch.float32).t()\nOutOfMemoryError: " CARD, 1, "maximum_memory_usage", "move less", NULL, NULL, "unsloth",
	 OOM_CRASH_SAVE, "merging is a part of saving there"},
	{TRACE AT("/l/verl/workers/actor/dp_actor.py", "update_policy", "loss, log_prob = self._forward_micro_batch(data)") NEW "actor_rollout_ref.rollout.gpu_memory_utilization=0.5 data.train_batch_size=64\n", 6,
	 "optimizer_offload", "device_map", NULL, NULL, "verl", OOM_CRASH_FORWARD, "a trainer takes more than its engine's share"},
	{"Training yolov8m on an A100 (40 GB each)\n" "RuntimeError: " OLD("14.00 MiB", "3.81 GiB", "3.03 GiB", "10.00 MiB", "3.11 GiB"), 1, "CUDA_DEVICE_ORDER", NULL, "cards of 40 GB, the message of one of 3.81 GiB", NULL,
	 "ultralytics", OOM_CRASH_TRAIN_STEP, "no A100 has 3.81 GiB"},
	{"Training yolov8m on my 3090 24GB\n" "RuntimeError: " CARD, 6, "batch= lower", "CUDA_DEVICE_ORDER", NULL, "cards of", "ultralytics", OOM_CRASH_TRAIN_STEP, "23.70 GiB are 24 GB"},
	{TRACE AT("/w/nets/matcher.py", "compute_matches", "quality = boxlist_iou(boxes, anchors)  # [N, M]") "RuntimeError: " CARD, 1, "compare in pieces", NULL, "all pairs of two sets", NULL, NULL, OOM_CRASH_FORWARD,
	 "whatever the boxes are called"},
	/* ---- what is trained ---- */
	{"model = FastLanguageModel.get_peft_model(model, r = 64,\n    target_modules = [\"q_proj\", \"embed_tokens\", \"lm_head\"])\nTraining ends in OOM\nOutOfMemoryError: " CARD, 1, "without embed_tokens and lm_head",
	 "optim=", NULL, NULL, "unsloth", OOM_CRASH_TRAIN_STEP, "modules that are trained whole, beside adapters"},
	{"lora\xe5\xbe\xae\xe8\xb0\x83Qwen-72B\n" TRACE AT("/l/torch/nn/modules/module.py", "convert", "return t.to(device, dtype if t.is_floating_point() or t.is_complex() else None)") "RuntimeError: " CARD, 1, "16 bits",
	 NULL, "72 B parameters, by the model's name, x 2 bytes", NULL, NULL, OOM_CRASH_TO_DEVICE, "who fine-tunes adapters says of what"},
	{"Traceback (most recent call last): File \"/w/tune.py\", line 12, in <module>\n model.save_pretrained_merged(\"m\", tokenizer)\n File \"/x/site-packages/unsloth/save.py\", line 7, in save\n f()\nOutOfMemoryError: " CARD, 6,
	 "maximum_memory_usage", NULL, "in <module>: model.save_pretrained_merged", NULL, "unsloth", OOM_CRASH_SAVE, "a frame on the head's line has no prefix"},
	/* ---- names that hold a pass's, sizes in names, one card ---- */
	{"Training a GAN\n" TRACE AT("/w/models/pix.py", "optimize_parameters", "self.backward_G()") AT("/w/models/pix.py", "backward_G", "self.rec = self.netG(self.fake)") AT("/w/models/nets.py",
	 "forward", "return self.model(x)") "RuntimeError: " CARD, 6, "halve the micro-batch", NULL, NULL, NULL, NULL, OOM_CRASH_FORWARD, "what backward_G calls may run forward"},
	{"I fine tune llama-7b on a single A100\n" TRACE AT("sft.py", "main", "loss.backward()") BACKWARD "RuntimeError: " OLD("600.00 MiB", "79.15 GiB", "77.00 GiB", "300.00 MiB", "77.60 GiB"), 6,
	 "8-bit", "full_shard", "7 B parameters, by the model's name, x 16 bytes", NULL, NULL, OOM_CRASH_BACKWARD, "names in small letters; one card shards nothing"},
	{"Full sft with llama-factory, prompts and answers of ten turns, inference is fine\nper_device_train_batch_size=1\ncutoff_len=4096\nCUDA out of memory\n", 6, "cutoff_len", "gpu_memory_utilization", NULL,
	 NULL, "llamafactory", OOM_CRASH_TRAIN_STEP, "a training's batch outweighs a word"},
	/* ---- GRPO beside an engine, without a message ---- */
	{"swift rlhf --rlhf_type grpo --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.6 --gradient_checkpointing_kwargs '{\"use_reentrant\": true}'\nGRPO training is sometimes OOM\n"
	 "CUDA out of memory\n", 6, "--vllm_gpu_memory_utilization 0.6 -> 0.5", "--gradient_checkpointing true", "gradient checkpointing", NULL, "swift", OOM_CRASH_TRAIN_STEP,
	 "a step that is one; its arguments are read where it is on"},
};

static bool in_first(const struct oom_crash_answer *a, size_t n, const char *words)
{
	for (size_t i = 0; i < a->n_fix && i < n; i++)
		if (strstr(a->fix[i], words))
			return true;
	return false;
}

static void test_shown(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct oom_crash_answer a;
		struct oom_crash c;

		if (!oom_crash_decode(want[i].text, strlen(want[i].text), &c))
			fail_msg("%zu (%s): no message", i, want[i].reason);
		oom_crash_answer(&c, &a);
		if (!in_first(&a, want[i].within, want[i].first))
			fail_msg("%zu (%s): first fix \"%s\", not \"%s\"", i, want[i].reason, a.n_fix ? a.fix[0] : "", want[i].first);
		if (want[i].never && in_first(&a, a.n_fix, want[i].never))
			fail_msg("%zu (%s): has \"%s\"", i, want[i].reason, want[i].never);
		if (want[i].evidence && !in_evidence(&a, want[i].evidence))
			fail_msg("%zu (%s): no evidence \"%s\"", i, want[i].reason, want[i].evidence);
		if (want[i].not_said && in_evidence(&a, want[i].not_said))
			fail_msg("%zu (%s): evidence \"%s\"", i, want[i].reason, want[i].not_said);
		if (want[i].program && strcmp(c.program, want[i].program))
			fail_msg("%zu (%s): program \"%s\"", i, want[i].reason, c.program);
		if (want[i].phase != OOM_CRASH_UNKNOWN && c.phase != want[i].phase)
			fail_msg("%zu (%s): phase %s", i, want[i].reason, oom_crash_phase_str(c.phase));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_shown)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
