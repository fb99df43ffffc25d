/* Words for phases, buckets and classes of change: reports, columns. */
#include "oomplan/model.h"

static const char *const phases[OOM_PHASES][2] = {
	[OOM_PHASE_LOAD] = {"load", "after_load"},
	[OOM_PHASE_FWD1] = {"step 1 forward", "fwd1"}, [OOM_PHASE_BWD1] = {"step 1 backward", "bwd1"},
	[OOM_PHASE_OPT1] = {"step 1 optimizer", "opt1"}, [OOM_PHASE_FWD2] = {"step 2 forward", "fwd2"},
	[OOM_PHASE_BWD2] = {"step 2 backward", "bwd2"}, [OOM_PHASE_OPT2] = {"step 2 optimizer", "opt2"},
	[OOM_PHASE_EVAL] = {"evaluation", "eval_fwd"}, [OOM_PHASE_ROLLOUTS] = {"rollouts", "rollouts"},
};
static const char *const buckets[OOM_BUCKETS][2] = {
	[OOM_BUCKET_PARAMS] = {"weights", "pk_params"}, [OOM_BUCKET_BUFFERS] = {"buffers", "pk_buffers"},
	[OOM_BUCKET_INPUTS] = {"inputs", "pk_inputs"}, [OOM_BUCKET_GRADS] = {"gradients", "pk_grads"},
	[OOM_BUCKET_OPT] = {"optimizer state", "pk_opt"}, [OOM_BUCKET_SAVED] = {"saved activations", "pk_saved_act"},
	[OOM_BUCKET_AMP] = {"autocast weight copies", "pk_amp_copies"}, [OOM_BUCKET_LOGITS] = {"logits and loss", "pk_logits"},
	[OOM_BUCKET_RECOMPUTE] = {"recomputed activations", "pk_recompute"}, [OOM_BUCKET_TEMP] = {"temporaries", "pk_temp"},
	[OOM_BUCKET_COMM] = {"communication buffers", "pk_comm"},
};

const char *oom_phase_str(enum oom_phase p) { return phases[p][0]; }
const char *oom_phase_column(enum oom_phase p) { return phases[p][1]; }
bool oom_phase_occurs(const struct oom_eval *e, enum oom_phase p)
{
	return (p != OOM_PHASE_ROLLOUTS && p != OOM_PHASE_EVAL) || e->peak[p];
}
const char *oom_bucket_str(enum oom_bucket b) { return buckets[b][0]; }
const char *oom_bucket_column(enum oom_bucket b) { return buckets[b][1]; }

const char *oom_class_str(enum oom_class cls)
{
	static const char *const words[] = {
		[OOM_EXACT] = "exact", [OOM_NUMERICS] = "numerics", [OOM_PLACEMENT] = "placement",
		[OOM_SCIENCE] = "changes the science"};

	return words[cls];
}
