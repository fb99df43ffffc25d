/* Who is alive at the overall peak: the walk's categories at it, beside what an engine keeps. */
#include <string.h>

#include "program.h"
#include "timeline.h"

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

/* Who is alive at the overall peak. */
void oom_compose(const struct program *g, const struct oom_plan *p, const uint64_t *size,
		 struct oom_eval *out, uint64_t inputs, const struct oom_states *states)
{
	static const uint8_t bucket_of[OOM_CATS] = {
		[OOM_CAT_TEMP] = OOM_BUCKET_TEMP, [OOM_CAT_SAVED] = OOM_BUCKET_SAVED, [OOM_CAT_AMP] = OOM_BUCKET_AMP,
		[OOM_CAT_LOGITS] = OOM_BUCKET_LOGITS, [OOM_CAT_GRAD] = OOM_BUCKET_GRADS,
		[OOM_CAT_RECOMPUTE] = OOM_BUCKET_RECOMPUTE, [OOM_CAT_COMM] = OOM_BUCKET_COMM};
	const struct oom_tape *t = &g->tape;
	const bool step2 = out->peak_phase >= OOM_PHASE_FWD2 || states->opt_from_start,
		   sharded = states->grads_reduced;
	const bool many = p->grad_accum > 1 || sharded;
	const int kind = ((int)out->peak_phase - OOM_PHASE_FWD1) % 3;
	int64_t fat[OOM_CATS], fnet[OOM_CATS], bat[OOM_CATS], bnet[OOM_CATS];
	const struct oom_span f = oom_walk_cats(t, OOM_STREAM_FWD, size, false, fat, fnet,
						&(int32_t){0});
	int32_t row = -1;

	memset(out->bucket, 0, sizeof(out->bucket));
	out->bucket[OOM_BUCKET_PARAMS] = states->params;
	/* piled logits are all there is beside the states */
	if (out->peak_phase == OOM_PHASE_EVAL) {
		out->bucket[OOM_BUCKET_COMM] = states->comm + states->fwd;
		out->bucket[OOM_BUCKET_BUFFERS] = t->buffer_rounded;
		out->bucket[OOM_BUCKET_INPUTS] = inputs;
		out->bucket[OOM_BUCKET_OPT] = states->opt;
		out->bucket[OOM_BUCKET_LOGITS] = out->overall_peak;
		for (int b = 0; b < OOM_BUCKETS; b++)
			if (b != OOM_BUCKET_LOGITS)
				out->bucket[OOM_BUCKET_LOGITS] -= out->bucket[b];
		out->peak_op = "logits kept for metrics";
		out->peak_module = "evaluation loop";
		return;
	}
	out->bucket[OOM_BUCKET_COMM] = states->comm + (kind == 0 ? states->fwd :
						       kind == 1 ? states->bwd :
								   0);
	out->bucket[OOM_BUCKET_BUFFERS] = t->buffer_rounded;
	out->bucket[OOM_BUCKET_INPUTS] = inputs;
	out->bucket[OOM_BUCKET_OPT] = step2 || kind == 2 ? states->opt : 0;
	out->saved_amp_bytes = (uint64_t)fnet[OOM_CAT_AMP];
	out->saved_logits_bytes = (uint64_t)fnet[OOM_CAT_LOGITS];
	oom_walk_cats(t, OOM_STREAM_BWD, size, false, bat, bnet, &row);
	if (kind == 2) {
		out->bucket[OOM_BUCKET_GRADS] = sharded ? states->grads :
						(uint64_t)(bnet[OOM_CAT_GRAD] + fnet[OOM_CAT_GRAD]);
		out->bucket[OOM_BUCKET_TEMP] = out->overall_peak;
		for (int b = 0; b < OOM_BUCKETS; b++)
			if (b != OOM_BUCKET_TEMP)
				out->bucket[OOM_BUCKET_TEMP] -= out->bucket[b];
		out->peak_op = "optimizer step";
		out->peak_module = "";
		return;
	}
	if (p->grad_accum > 1 || (sharded && kind == 1))
		out->bucket[OOM_BUCKET_GRADS] += sharded ?
							 (p->grad_accum > 1 ? states->grads :
									      states->grads_first) :
							 (uint64_t)(bnet[OOM_CAT_GRAD] +
								    fnet[OOM_CAT_GRAD]);
	if (kind == 0) {
		oom_walk_cats(t, OOM_STREAM_FWD, size, false, fat, fnet, &row);
		for (int c = 0; c < OOM_CATS; c++)
			out->bucket[bucket_of[c]] += (uint64_t)fat[c];
	} else {
		if (many) {
			int64_t aat[OOM_CATS], anet[OOM_CATS];
			int32_t arow;
			const struct oom_span one = oom_walk(t, OOM_STREAM_BWD, size, false);
			const struct oom_span acc = oom_walk_cats(t, OOM_STREAM_BWD, size, true,
								  aat, anet, &arow);

			if (sharded || acc.peak + f.net + one.net >= one.peak) {
				memcpy(bat, aat, sizeof(bat));
				row = arow;
			}
		}
		for (int c = 0; c < OOM_CATS; c++)
			out->bucket[bucket_of[c]] += (uint64_t)(fnet[c] + bat[c]);
	}
	out->peak_op = row >= 0 ? t->rows[row].name : "";
	out->peak_module = row >= 0 ? t->rows[row].scope : "";
	if (out->offloaded_bytes)
		without_offloaded(out);
	else if (sharded)
		at_an_edge(out, states, kind == 1, inputs + t->buffer_rounded);
}
