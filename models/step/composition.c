/* Who is alive at the overall peak: the walk's categories at it, beside what an engine keeps. */
#include <string.h>

#include "program.h"
#include "tape/timeline.h"

/* A sharded pass may peak where it begins or ends: gathered parameters beside few activations or
 * none. */
static void at_an_edge(struct oom_eval *out, const struct oom_states *s, bool backward,
		       uint64_t inputs)
{
	uint64_t sum = 0;

	for (int b = 0; b < OOM_BUCKETS; b++)
		sum += out->bucket[b];
	if (sum == out->overall_peak)
		return;
	for (int b = OOM_BUCKET_SAVED; b < OOM_BUCKETS; b++)
		out->bucket[b] = 0;
	if (backward)
		out->bucket[OOM_BUCKET_GRADS] = s->grads;
	sum = s->params + inputs + out->bucket[OOM_BUCKET_GRADS] + out->bucket[OOM_BUCKET_OPT] +
	      s->comm;
	out->bucket[OOM_BUCKET_COMM] = s->comm + (!backward ? s->fwd_start :
						  sum + s->bwd_end == out->overall_peak ?
							      s->bwd_end :
							      s->bwd_late);
	out->bucket[OOM_BUCKET_TEMP] = out->overall_peak - (sum - s->comm) -
				       out->bucket[OOM_BUCKET_COMM];
	out->peak_op = backward ? "the last unit's gradients" : "the first unit is gathered";
	out->peak_module = "";
}

/* What waits on the host leaves the saved activations; in the last layer of backward it is gone
 * anyway. */
static void without_offloaded(struct oom_eval *out)
{
	static const uint8_t order[] = {OOM_BUCKET_SAVED, OOM_BUCKET_AMP,    OOM_BUCKET_RECOMPUTE,
					OOM_BUCKET_TEMP,  OOM_BUCKET_LOGITS, OOM_BUCKET_GRADS};
	uint64_t sum = 0;

	for (int b = 0; b < OOM_BUCKETS; b++)
		sum += out->bucket[b];
	for (size_t i = 0; i < sizeof(order) && sum > out->overall_peak; i++) {
		const uint64_t over = sum - out->overall_peak,
			       take = out->bucket[order[i]] < over ? out->bucket[order[i]] : over;

		out->bucket[order[i]] -= take;
		sum -= take;
	}
	out->bucket[OOM_BUCKET_TEMP] += out->overall_peak - sum;
}

/* What bucket b holds when the others add up to all but it. */
static void rest_into(struct oom_eval *out, enum oom_bucket into)
{
	out->bucket[into] = out->overall_peak;
	for (int b = 0; b < OOM_BUCKETS; b++)
		if (b != (int)into)
			out->bucket[into] -= out->bucket[b];
}

static void residents(const struct oom_tape *t, const struct oom_states *s, uint64_t inputs,
		      uint64_t comm, uint64_t opt, struct oom_eval *out)
{
	memset(out->bucket, 0, sizeof(out->bucket));
	out->bucket[OOM_BUCKET_PARAMS] = s->params;
	out->bucket[OOM_BUCKET_BUFFERS] = t->buffer_rounded;
	out->bucket[OOM_BUCKET_INPUTS] = inputs;
	out->bucket[OOM_BUCKET_COMM] = s->comm + comm;
	out->bucket[OOM_BUCKET_OPT] = opt;
}

/* One pass of the step: what its walk has alive at its peak, and what was there before it. */
struct moment {
	int64_t at[OOM_CATS], net[OOM_CATS];
	int32_t row;
};

static void add_up(struct oom_eval *out, const int64_t *a, const int64_t *b)
{
	static const uint8_t bucket_of[OOM_CATS] = {
		[OOM_CAT_TEMP] = OOM_BUCKET_TEMP, [OOM_CAT_SAVED] = OOM_BUCKET_SAVED, [OOM_CAT_AMP] = OOM_BUCKET_AMP,
		[OOM_CAT_LOGITS] = OOM_BUCKET_LOGITS, [OOM_CAT_GRAD] = OOM_BUCKET_GRADS,
		[OOM_CAT_RECOMPUTE] = OOM_BUCKET_RECOMPUTE, [OOM_CAT_COMM] = OOM_BUCKET_COMM};

	for (int c = 0; c < OOM_CATS; c++)
		out->bucket[bucket_of[c]] += (uint64_t)(a[c] + (b ? b[c] : 0));
}

/* The backward pass as it peaks: of a step's first micro-batch, or of one that finds gradients. */
static void backward_moment(const struct oom_tape *t, const uint64_t *size, int64_t left,
			    bool sharded, struct moment *m)
{
	struct moment acc;
	const struct oom_span one = oom_walk(t, OOM_STREAM_BWD, size, false);
	const struct oom_span again = oom_walk_cats(t, OOM_STREAM_BWD, size, true, acc.at, acc.net,
						    &acc.row);

	if (!sharded && again.peak + left + one.net < one.peak)
		return;
	memcpy(m->at, acc.at, sizeof(m->at));
	m->row = acc.row;
}

/* Who is alive at the overall peak. */
void oom_compose(const struct program *g, const struct oom_plan *p, const uint64_t *size,
		 struct oom_eval *out, uint64_t inputs, const struct oom_states *states)
{
	const struct oom_tape *t = &g->tape;
	const bool step2 = out->peak_phase >= OOM_PHASE_FWD2 || states->opt_from_start,
		   sharded = states->grads_reduced;
	const bool many = p->grad_accum > 1;
	const int kind = ((int)out->peak_phase - OOM_PHASE_FWD1) % 3;
	struct moment f, b = {.row = -1};
	struct oom_span left;
	uint64_t grads;

	/* piled logits are all there is beside the states */
	if (out->peak_phase == OOM_PHASE_EVAL) {
		residents(t, states, inputs, states->fwd, states->opt, out);
		rest_into(out, OOM_BUCKET_LOGITS);
		out->peak_op = "logits kept for metrics";
		out->peak_module = "evaluation loop";
		return;
	}
	left = oom_walk_cats(t, OOM_STREAM_FWD, size, false, f.at, f.net, &f.row);
	oom_walk_cats(t, OOM_STREAM_BWD, size, false, b.at, b.net, &b.row);
	residents(t, states, inputs, kind == 0 ? states->fwd : kind == 1 ? states->bwd : 0,
		  step2 || kind == 2 ? states->opt : 0, out);
	out->saved_amp_bytes = (uint64_t)f.net[OOM_CAT_AMP];
	out->saved_logits_bytes = (uint64_t)f.net[OOM_CAT_LOGITS];
	grads = sharded ? states->grads :
			  (uint64_t)(b.net[OOM_CAT_GRAD] + f.net[OOM_CAT_GRAD]);
	if (kind == 2) {
		out->bucket[OOM_BUCKET_GRADS] = grads;
		rest_into(out, OOM_BUCKET_TEMP);
		out->peak_op = "optimizer step";
		out->peak_module = "";
		return;
	}
	if (many || (sharded && kind == 1))
		out->bucket[OOM_BUCKET_GRADS] = many ? grads : states->grads_first;
	if (kind == 0) {
		add_up(out, f.at, NULL);
		b.row = f.row;
	} else {
		if (many || sharded)
			backward_moment(t, size, left.net, sharded, &b);
		add_up(out, f.net, b.at);
	}
	out->peak_op = b.row >= 0 ? t->rows[b.row].name : "";
	out->peak_module = b.row >= 0 ? t->rows[b.row].scope : "";
	if (out->offloaded_bytes)
		without_offloaded(out);
	else if (sharded)
		at_an_edge(out, states, kind == 1, inputs + t->buffer_rounded);
}
