/* What was going on when it ran out, by phase and program. Only a training has the fixes of a training. */
#include "tables.h"

static bool draws(const struct oom_crash *c)
{
	const char *const tiles = oom_lever_in(oom_program_dialect(c, false), "torch", OOM_LEVER_TILE);

	return oom_runtime_is(c, OOM_RUNTIME_TORCH) && tiles && tiles != oom_lever_in("torch", "torch", OOM_LEVER_TILE);
}

enum oom_crash_work oom_crash_work(const struct oom_crash *c)
{
	const enum oom_activity does = oom_program_of(c)->activity;
	const bool infers = does == OOM_ACTIVITY_INFERS || does == OOM_ACTIVITY_SERVES;

	switch (c->phase) {
	case OOM_CRASH_FORWARD:
		/* a model runs forward in either; without a word of a training nobody knows */
		return infers ? OOM_WORK_INFERENCE : c->trains ? OOM_WORK_TRAINING : OOM_WORK_UNKNOWN;
	case OOM_CRASH_BACKWARD:
	case OOM_CRASH_OPTIMIZER:
	case OOM_CRASH_TRAIN_STEP:
		return OOM_WORK_TRAINING;
	case OOM_CRASH_EVAL:
		return OOM_WORK_EVAL;
	case OOM_CRASH_INFERENCE:
		return OOM_WORK_INFERENCE;
	case OOM_CRASH_LOAD:
	case OOM_CRASH_TO_DEVICE:
		return OOM_WORK_LOADING;
	case OOM_CRASH_INIT:
		return infers ? OOM_WORK_SERVER_SETUP : OOM_WORK_SETUP;
	case OOM_CRASH_COMPILE:
		return OOM_WORK_COMPILING;
	case OOM_CRASH_DATA:
		return OOM_WORK_DATA;
	case OOM_CRASH_COLLECTIVE:
		return OOM_WORK_COLLECTIVE;
	case OOM_CRASH_TEST:
		return OOM_WORK_TESTING;
	case OOM_CRASH_SAVE:
		return OOM_WORK_SAVING;
	default:
		break;
	}
	/* who can draw, and says no word of a training, draws */
	if (oom_does_either(does) && !c->trains && draws(c))
		return OOM_WORK_INFERENCE;
	return infers			      ? OOM_WORK_INFERENCE :
	       does == OOM_ACTIVITY_TESTS     ? OOM_WORK_TESTING :
	       does == OOM_ACTIVITY_TRAINS    ? OOM_WORK_TRAINING :
						OOM_WORK_UNKNOWN;
}

const char *oom_crash_work_str(enum oom_crash_work work)
{
	static const char *const words[OOM_WORKS] = {
		"unknown", "training", "eval", "inference", "loading", "saving", "setup", "server_setup",
		"compiling", "data", "collective", "testing"};

	return words[work];
}
