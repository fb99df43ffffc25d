/* States in host memory or on disk.
 *
 * ZeRO-Offload: gradients of the partition go to pinned host memory as they are made (4 B), master
 * weights and moments lie in pageable memory and are stepped there; parameters are pinned (2 B).
 * ZeRO-Infinity: to disk instead, through pinned staging buffers (stage3.py
 * estimate_zero3_model_states_mem_needs: 16 and 18 B per parameter; offload_config.py buffer_count x
 * buffer_size).  FSDP's CPUOffload and CPUOffloadPolicy: shards and gradients pinned, the step runs
 * on the host. */
#include "step/engines.h"
#include "step/passes/sharing.h"

/* offload_config.py: buffer_size 1e8 elements; four buffers for the optimizer's states, five for
 * parameters. */
enum { STAGED = 100000000 };

static bool applies(const struct oom_plan *p)
{
	return p->offload_optimizer != OOM_OFFLOAD_NONE || p->offload_params != OOM_OFFLOAD_NONE;
}

static enum oom_place place_of(int64_t offload)
{
	return offload == OOM_OFFLOAD_NVME ? OOM_ON_NVME : OOM_IN_PAGEABLE;
}

static void pin(struct oom_schedule *s, const char *name, uint64_t bytes)
{
	oom_add_holding(s, name, OOM_BUCKET_COMM, bytes, OOM_AT_START, OOM_AT_NEVER)->place = OOM_IN_PINNED;
}

static void optimizer_away(struct oom_schedule *s, const struct oom_plan *p)
{
	const uint64_t part = oom_part_of(s->in.trainable, s->ranks);

	s->hold[OOM_HOLD_STATE].place = s->hold[OOM_HOLD_MASTER].place =
		(uint8_t)place_of(p->offload_optimizer);
	if (p->offload_optimizer == OOM_OFFLOAD_NVME)
		pin(s, "staging buffers", 4 * 4 * oom_least(part, STAGED));
	pin(s, "gradients on the host", 4 * part);
	if (p->zero_stage >= 2)
		s->hold[OOM_HOLD_GRADS].bytes = 0;
	/* stage_1_and_2.py step of 0.14.1 to 0.16: bit16_partitions[i].copy_(fp32_partition.to(the card)), a group of
	 * parameters at a time, nearly all of which are in one (matrices, which decay) */
	s->copied_back = p->fp32_copy_back && p->zero_stage < 3 ? 4 * part : 0;
	s->temps[0] = s->temps[1] = s->copied_back;
}

/* torchao optim/cpu_offload.py: a copy of every parameter and its gradient in pinned memory, states
 * beside them; the gradients on the card stay until zero_grad, or go as they come
 * (stream_gradients.c).  Small tensors are stepped on the card, by a fused kernel. */
static void stepped_on_host(struct oom_schedule *s)
{
	struct oom_holding *states = &s->hold[OOM_HOLD_STATE];

	oom_add_holding(s, "optimizer state on the host", OOM_BUCKET_OPT,
			states->bytes - s->in.state->small, OOM_AT_STEP, OOM_AT_NEVER)->place = OOM_IN_PAGEABLE;
	states->bytes = s->in.state->small;
	states->pieces = OOM_IN_ONE;
	pin(s, "parameters and gradients on the host", 2 * s->in.grads);
	s->temps[0] = s->temps[1] = 0;
}

/* Buffers stay where they are: what goes to the host is parameters. */
static void buffers_stay(struct oom_schedule *s)
{
	if (!s->in.whole_elems)
		return;
	s->hold[OOM_HOLD_WEIGHTS].bytes -= s->in.whole;
	oom_add_holding(s, "packed weights", OOM_BUCKET_PARAMS, s->in.whole, OOM_AT_LOAD, OOM_AT_NEVER);
}

static void params_away(struct oom_schedule *s, const struct oom_plan *p)
{
	buffers_stay(s);
	s->hold[OOM_HOLD_WEIGHTS].place = p->offload_params == OOM_OFFLOAD_NVME ? OOM_ON_NVME :
										 OOM_IN_PINNED;
	if (p->offload_params == OOM_OFFLOAD_NVME)
		pin(s, "staging buffers", 5 * (uint64_t)STAGED * 2);
}

/* FSDP: everything or nothing; gradients as the shards. */
static void all_away(struct oom_schedule *s, const struct oom_plan *p)
{
	const uint64_t wide = oom_engine_casts_trained(p) ? 2 : 1;

	pin(s, "gradient shards", oom_part_of(wide * s->in.grads, s->ranks));
	buffers_stay(s);
	s->hold[OOM_HOLD_WEIGHTS].place = OOM_IN_PINNED;
	s->hold[OOM_HOLD_STATE].place = OOM_IN_PAGEABLE;
	s->temps[0] = s->temps[1] = 0;
}

static void holdings(struct oom_schedule *s, const struct oom_plan *p)
{
	if (oom_engine_of(p)->wraps_units) {
		all_away(s, p);
		return;
	}
	if (p->offload_optimizer != OOM_OFFLOAD_NONE && !oom_engine_of(p)->partitions)
		stepped_on_host(s);
	else if (p->offload_optimizer != OOM_OFFLOAD_NONE)
		optimizer_away(s, p);
	if (p->offload_params != OOM_OFFLOAD_NONE)
		params_away(s, p);
}

const struct oom_pass oom_pass_offload_states = {
	.name = "offload-states",
	.cls = OOM_PLACEMENT,
	.summary = "optimizer state, and parameters, in host memory or on disk",
	.knobs = "offload-optimizer+offload-params",
	.source = "deepspeed/runtime/zero/stage3.py, offload_config.py; torch/distributed/fsdp; "
		  "torchao optim/cpu_offload.py",
	.applies = applies,
	.holdings = holdings,
};
