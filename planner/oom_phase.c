/* Where in the run a crash happened, read from frames, progress bars and the words around the message.
 *
 * A rule is a word and the phase it speaks for; the table is ordered by how much a word says.  An optimizer frame stands
 * inside a training step, a recomputed forward inside a backward: the outer, rarer word wins over the common one. */
#include <stdio.h>
#include <string.h>

#include "oom_parts.h"

static const char *const names[OOM_CRASH_PHASES] = {
	"unknown", "forward", "backward", "optimizer", "train_step", "eval", "inference", "load", "to_device", "init", "compile",
	"data", "collective", "test", "save"};

const char *oom_crash_phase_str(enum oom_crash_phase p)
{
	return names[p];
}

static const struct {
	const char *word;
	enum oom_crash_phase phase;
	bool anywhere;          /* also behind the message; else only before it */
} rules[] = {
	/* other programs than training */
	{"compile permanent error", OOM_CRASH_COMPILE, true},
	{"torch/_inductor", OOM_CRASH_COMPILE, false},
	{"torch/_dynamo/backends", OOM_CRASH_COMPILE, false},
	{"::test_", OOM_CRASH_TEST, false},
	{"/test/test_", OOM_CRASH_TEST, false},
	{"NCCL WARN", OOM_CRASH_COLLECTIVE, true},
	{"ProcessGroupNCCL.cpp", OOM_CRASH_COLLECTIVE, false},
	{"distributed_c10d.py", OOM_CRASH_COLLECTIVE, false},
	{"DataLoader worker", OOM_CRASH_DATA, true},
	/* saving and loading */
	{"save_pretrained", OOM_CRASH_SAVE, false},
	{"save_checkpoint", OOM_CRASH_SAVE, false},
	{"torch.save(", OOM_CRASH_SAVE, false},
	{"gather_16bit_weights", OOM_CRASH_SAVE, false},
	{"Loading checkpoint shards", OOM_CRASH_LOAD, true},
	{"set_module_tensor_to_device", OOM_CRASH_LOAD, false},
	{"_load_state_dict_into", OOM_CRASH_LOAD, false},
	{"load_state_dict", OOM_CRASH_LOAD, false},
	{"from_pretrained", OOM_CRASH_LOAD, false},
	{"safetensors/torch.py", OOM_CRASH_LOAD, false},
	{"torch.load(", OOM_CRASH_LOAD, false},
	{"load_checkpoint", OOM_CRASH_LOAD, false},
	{"load_weights", OOM_CRASH_LOAD, false},
	{"load_model(", OOM_CRASH_LOAD, false},
	{"Error processing tensor for shard", OOM_CRASH_LOAD, false},
	{"alloc_cpu.cpp:81] data", OOM_CRASH_LOAD, true},
	/* evaluation: a forward inside it is still evaluation */
	{"evaluation_loop", OOM_CRASH_EVAL, false},
	{"prediction_step", OOM_CRASH_EVAL, false},
	{"prediction_loop", OOM_CRASH_EVAL, false},
	{"trainer.evaluate(", OOM_CRASH_EVAL, true},
	{"nested_concat", OOM_CRASH_EVAL, false},
	{"validation_step", OOM_CRASH_EVAL, false},
	{"run_evaluation", OOM_CRASH_EVAL, false},
	{"in evaluate", OOM_CRASH_EVAL, false},
	{"in validate", OOM_CRASH_EVAL, false},
	/* the optimizer and the backward pass */
	{"_multi_tensor_", OOM_CRASH_OPTIMIZER, false},
	{"_single_tensor_", OOM_CRASH_OPTIMIZER, false},
	{"torch/optim/adam", OOM_CRASH_OPTIMIZER, false},
	{"torch/optim/sgd", OOM_CRASH_OPTIMIZER, false},
	{"bitsandbytes/optim", OOM_CRASH_OPTIMIZER, false},
	{"optimizer.step(", OOM_CRASH_OPTIMIZER, false},
	{"optimizers/fused_adam", OOM_CRASH_OPTIMIZER, false},
	{"_take_model_step", OOM_CRASH_OPTIMIZER, false},
	{"run_backward", OOM_CRASH_BACKWARD, false},
	{"loss.backward(", OOM_CRASH_BACKWARD, false},
	{".backward(", OOM_CRASH_BACKWARD, false},
	{"accelerator.backward", OOM_CRASH_BACKWARD, false},
	{", in backward", OOM_CRASH_BACKWARD, false},
	{" in backward(", OOM_CRASH_BACKWARD, false},
	{"gradients/", OOM_CRASH_BACKWARD, false},
	/* generation and pipelines */
	{"generation/utils.py", OOM_CRASH_INFERENCE, false},
	{"in generate", OOM_CRASH_INFERENCE, false},
	{".generate(", OOM_CRASH_INFERENCE, false},
	{"diffusers/pipelines", OOM_CRASH_INFERENCE, false},
	{"sampling.py", OOM_CRASH_INFERENCE, false},
	{"samplers.py", OOM_CRASH_INFERENCE, false},
	{"KSampler", OOM_CRASH_INFERENCE, true},
	{"vae.decode", OOM_CRASH_INFERENCE, false},
	{"ComfyUI", OOM_CRASH_INFERENCE, true},
	{"This error means you ran out of memory on your GPU", OOM_CRASH_INFERENCE, true},
	{"text-generation", OOM_CRASH_INFERENCE, true},
	{"ollama", OOM_CRASH_INFERENCE, true},
	{"llama_model_load", OOM_CRASH_LOAD, true},
	{"inference.py", OOM_CRASH_INFERENCE, false},
	{"predict(", OOM_CRASH_INFERENCE, false},
	{"in predict", OOM_CRASH_INFERENCE, false},
	/* set-up */
	{"check_enough_kv_cache", OOM_CRASH_INIT, true},
	{"KV cache", OOM_CRASH_INIT, true},
	{"determine_num_available_blocks", OOM_CRASH_INIT, false},
	{"profile_run", OOM_CRASH_INIT, false},
	{"/Initializer/", OOM_CRASH_INIT, true},
	{"deepspeed.initialize", OOM_CRASH_INIT, false},
	{"init_process_group", OOM_CRASH_INIT, false},
	{".to(device", OOM_CRASH_TO_DEVICE, false},
	{".to(self.device", OOM_CRASH_TO_DEVICE, false},
	{".to('cuda", OOM_CRASH_TO_DEVICE, false},
	{".to(\"cuda", OOM_CRASH_TO_DEVICE, false},
	{"data.to(", OOM_CRASH_TO_DEVICE, false},
	{".cuda()", OOM_CRASH_TO_DEVICE, false},
	{"in _apply", OOM_CRASH_TO_DEVICE, false},
	{"move_to_device", OOM_CRASH_TO_DEVICE, false},
	{"to_device", OOM_CRASH_TO_DEVICE, false},
	/* the forward pass, and a step of unknown part */
	{"forward/backward", OOM_CRASH_TRAIN_STEP, false},
	{"cross_entropy", OOM_CRASH_FORWARD, false},
	{"in forward", OOM_CRASH_FORWARD, false},
	{"forward_call", OOM_CRASH_FORWARD, false},
	{"_call_impl", OOM_CRASH_FORWARD, false},
	{"nn/functional.py", OOM_CRASH_FORWARD, false},
	{"[[Node:", OOM_CRASH_FORWARD, true},
	{"OP_REQUIRES failed", OOM_CRASH_FORWARD, false},
	{"training_step", OOM_CRASH_TRAIN_STEP, false},
	{"trainer.train(", OOM_CRASH_TRAIN_STEP, false},
	{"in train", OOM_CRASH_TRAIN_STEP, false},
	{"train.py", OOM_CRASH_TRAIN_STEP, true},
	{"Epoch ", OOM_CRASH_TRAIN_STEP, true},
	{"epoch ", OOM_CRASH_TRAIN_STEP, true},
	{"skipping update", OOM_CRASH_TRAIN_STEP, false},
	{"s/it]", OOM_CRASH_TRAIN_STEP, true},
	{"it/s]", OOM_CRASH_TRAIN_STEP, true},
	{"ChildFailedError", OOM_CRASH_TRAIN_STEP, true},
	{"Execution of replica", OOM_CRASH_TRAIN_STEP, false},
	{"semaphore_tracker", OOM_CRASH_TRAIN_STEP, true},
};

/* A pass over the whole window: the first rule of the table that any of its words meets. */
void oom_decode_phase(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *line_end = memchr(at, '\n', (size_t)(end - at));

	if (!line_end)
		line_end = end;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		/* the message's own line counts as before it: [[Node: ...]] and compile errors stand there */
		const char *p = oom_text_find(begin, rules[i].anywhere ? end : line_end, rules[i].word);

		if (!p)
			continue;
		c->phase = rules[i].phase;
		snprintf(c->phase_evidence, sizeof(c->phase_evidence), "\"%s\"", rules[i].word);
		return;
	}
	c->phase = OOM_CRASH_UNKNOWN;
	c->phase_evidence[0] = 0;
	if (!strcmp(c->framework, "torch-mps")) {
		c->phase = OOM_CRASH_INFERENCE;
		snprintf(c->phase_evidence, sizeof(c->phase_evidence), "nothing in the text; Apple GPUs mostly run inference: a guess");
	}
}
