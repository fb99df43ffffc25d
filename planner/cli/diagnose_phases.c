/* A recording's events as phases of training, and the plan's peaks beside them.
 *
 * A recording names no phases, but what is held tells them: what the forward pass keeps grows until the loss;
 * gradients, recomputed activations and what autograd's own threads hold, which have no Python frames, grow in the
 * backward pass; optimizer states grow in the step. A step after the first is one that begins with optimizer states there. Pieces of the recording between two
 * phases count with the one before. */
#include "diagnose.h"

/* What the piece i does, by what changed since the piece before. */
static enum oom_phase phase_of(const struct oom_snapshot_point *was, const struct oom_snapshot_point *is, enum oom_phase before)
{
	const bool later = was->held[OOM_HELD_OPT] > 0;
	const uint64_t kept = was->held[OOM_HELD_FORWARD] + was->held[OOM_HELD_LOSS], keeps = is->held[OOM_HELD_FORWARD] + is->held[OOM_HELD_LOSS];

	if (is->held[OOM_HELD_OPT] > was->held[OOM_HELD_OPT])
		return later && before >= OOM_PHASE_FWD2 ? OOM_PHASE_OPT2 : OOM_PHASE_OPT1;
	if (is->held[OOM_HELD_RECOMPUTE] || is->held[OOM_HELD_BACKWARD] || is->held[OOM_HELD_GRADS] > was->held[OOM_HELD_GRADS] ||
	    is->held[OOM_HELD_NO_FRAMES] > was->held[OOM_HELD_NO_FRAMES])
		return later ? OOM_PHASE_BWD2 : OOM_PHASE_BWD1;
	if (keeps > kept && !is->held[OOM_HELD_NO_FRAMES])
		return later ? OOM_PHASE_FWD2 : OOM_PHASE_FWD1;
	return before;
}

void oom_phases_read(const struct oom_snapshot *s, struct oom_recorded_phases *out)
{
	static const struct oom_snapshot_point nothing = {0};
	enum oom_phase phase = OOM_PHASE_LOAD;

	*out = (struct oom_recorded_phases){.n_points = s->n_points};
	for (size_t i = 0; i < s->n_points; i++) {
		phase = phase_of(i ? &s->point[i - 1] : &nothing, &s->point[i], phase);
		out->of_point[i] = (uint8_t)phase;
		out->seen[phase] = true;
		if (s->point[i].bytes > out->peak[phase])
			out->peak[phase] = s->point[i].bytes;
	}
}

/* The phase whose recorded and predicted peaks differ most, of those that both have. */
static enum oom_phase worst(const struct oom_recorded_phases *r, const struct oom_eval *e)
{
	enum oom_phase at = OOM_PHASES;
	uint64_t most = 0;

	for (int p = OOM_PHASE_FWD1; p <= OOM_PHASE_OPT2; p++) {
		const uint64_t is = r->peak[p], plan = e->peak[p], by = is > plan ? is - plan : plan - is;

		if (r->seen[p] && by > most) {
			most = by;
			at = (enum oom_phase)p;
		}
	}
	return at;
}

void oom_phases_text(const struct oom_recorded_phases *r, const struct oom_eval *e)
{
	const enum oom_phase most = worst(r, e);

	if (most == OOM_PHASES)
		return;
	printf("\n  %-30s %12s    predicted\n", "phase, by what is held", "peak");
	for (int p = OOM_PHASE_FWD1; p <= OOM_PHASE_OPT2; p++)
		if (r->seen[p])
			printf("  %-30s %12s %12s%s\n", oom_phase_str((enum oom_phase)p), oom_gib(r->peak[p]), oom_gib(e->peak[p]),
			       (enum oom_phase)p == most ? "  (the farthest apart)" : "");
}

void oom_phases_json(struct oom_json *j, const struct oom_recorded_phases *r, const struct oom_eval *e)
{
	oom_json_array(j, "phases");
	for (int p = OOM_PHASE_FWD1; p <= OOM_PHASE_OPT2; p++) {
		if (!r->seen[p])
			continue;
		oom_json_object(j, NULL);
		oom_json_text(j, "phase", oom_phase_str((enum oom_phase)p));
		oom_json_uint(j, "peak_bytes", r->peak[p]);
		if (e)
			oom_json_uint(j, "predicted_bytes", e->peak[p]);
		oom_json_end(j);
	}
	oom_json_end(j);
}
