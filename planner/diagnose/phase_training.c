/* Whether the run trains, whatever part of it crashed: by its program, by names that only a gradient has, by the loop
 * around the forward pass. */
#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Names that only a gradient or an optimizer has: XLA's transformations, TensorFlow's graph. A launcher of ranks, unless
 * the program infers. */
static bool differentiates(const struct oom_crash *c, const char *begin, const char *end)
{
	static const char *const xla[] = {"jvp(", "train_step", "transpose("}, *const graph[] = {"/Adam/", "training/", "gradients/", "gradient_tape/"},
				 *const launchers[] = {"torch.distributed.elastic", "torch/distributed/elastic", "accelerate/commands/launch",
				     "deepspeed/launcher", "torchrun "};
	const bool executable = oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE);
	const enum oom_activity does = oom_program_of(c)->activity;

	for (size_t i = 0; executable && i < COUNT(xla); i++)
		if (oom_text_find(begin, end, xla[i]))
			return true;
	for (size_t i = 0; oom_runtime_is(c, OOM_RUNTIME_GRAPH) && i < COUNT(graph); i++)
		if (oom_text_find(begin, end, graph[i]))
			return true;
	for (size_t i = 0; oom_does_either(does) && i < COUNT(launchers); i++)
		if (oom_text_find(begin, end, launchers[i]))
			/* of one process it says nothing */
			return c->phase != OOM_CRASH_INFERENCE && c->phase != OOM_CRASH_EVAL && !oom_text_find(begin, end, "nproc_per_node 1 ") &&
			       !oom_text_find(begin, end, "nproc_per_node=1 ") && !oom_text_find(begin, end, "nproc-per-node 1 ");
	return false;
}

/* A cell, or lines around the one that failed: the loop is over what is trained on, and over nothing else. */
static bool loops_over_training(const char *begin, const char *at)
{
	static const char *const trained[] = {"train_dataloader", "train_loader", "trainloader", "training_loader"},
				 *const others[] = {"eval_dataloader", "val_dataloader", "valid_dataloader", "test_dataloader", "val_loader", "valid_loader", "test_loader", "testloader", "no_grad"};
	bool any = false;

	for (size_t i = 0; i < COUNT(trained) && !any; i++)
		any = oom_text_find(begin, at, trained[i]) != NULL;
	for (size_t i = 0; i < COUNT(others) && any; i++)
		any = !oom_text_find(begin, at, others[i]);
	return any;
}

/* What else in the text speaks of a training: a loop around the forward pass, a loss behind it, a progress bar, the
 * name of the script. */
bool oom_phase_trains(const struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	static const char *const losses[] = {"cross_entropy", "criterion(", "loss_fn", "compute_loss", "nn/modules/loss.py",
					     "/losses/", "/loss.py", "loss_func",  "checkpoint.py", "/assigners/", "_assigner.py", "/matcher.py", "in build_targets",
					     /* given its labels, a model of transformers computes its loss */
					     "in get_targets", "labels="};
	char buf[32 << 10];
	struct oom_span s;
	struct oom_crash said = *c;

	/* ranks of a program that nobody made to serve */
	if (oom_program_of(c)->activity == OOM_ACTIVITY_TRAINS || differentiates(c, begin, end) ||
	    (c->rank >= 0 && c->phase == OOM_CRASH_FORWARD && oom_does_either(oom_program_of(c)->activity)))
		return true;
	if (oom_phase_ends_traceback(c) && oom_traceback(begin, at, end, &s)) {
		s = oom_traceback_executed(&s, buf, sizeof(buf));
		/* "forward_train", "train_one_epoch" */
		if (oom_phase_in_training(&s) || oom_phase_meets(oom_phase_of_driver, s.from, s.to) ||
		    oom_frame_of_verb(s.from, s.to, "train", OOM_CRASH_TRAIN_STEP) || oom_frame_of_verb(s.from, s.to, "loss", OOM_CRASH_FORWARD))
			return true;
		for (size_t i = 0; i < COUNT(losses); i++)
			if (oom_text_find(s.from, s.to, losses[i]))
				return true;
	}
	if (oom_phase_by_nearest(&said, begin, at, end) && said.phase == OOM_CRASH_TRAIN_STEP)
		return true;
	if (c->phase == OOM_CRASH_FORWARD && loops_over_training(begin, at))
		return true;
	/* who shows a forward pass says what it was part of */
	said = *c;
	if (c->phase == OOM_CRASH_FORWARD && oom_does_either(oom_program_of(c)->activity) && oom_phase_by_prose(&said, begin, at, end) && said.phase == OOM_CRASH_TRAIN_STEP)
		return true;
	if (oom_phase_script_trains(c, begin, end))
		return true;
	/* the weakest sign: a forward pass where people speak of a training and of nothing else */
	said = *c;
	said.phase = OOM_CRASH_UNKNOWN;
	return c->phase == OOM_CRASH_FORWARD && oom_does_either(oom_program_of(c)->activity) && oom_runtime_is(c, OOM_RUNTIME_TORCH) && oom_phase_by_people(&said, begin, end) &&
	       said.phase == OOM_CRASH_TRAIN_STEP;
}
