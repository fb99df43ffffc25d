/* The pred_* columns of a runs file. */
#include "columns.h"

/* The first of them, in the order of the values that oom_run_columns_write() has. */
static const char *const scalar[] = {
	"total_params", "trainable_params", "active_params", "param_bytes", "buffer_bytes", "input_bytes", "grad_bytes",
	"optimizer_state_bytes", "saved_act_bytes", "saved_act_amp_copies", "saved_act_logits", "reserved_native",
	"reserved_expandable", "overall_peak"};
enum { SCALARS = sizeof(scalar) / sizeof(scalar[0]) };

void oom_run_columns_header(FILE *out)
{
	for (int i = 0; i < SCALARS; i++)
		fprintf(out, "pred_%s,", scalar[i]);
	for (int p = 0; p < OOM_PHASES; p++) {
		if (p == OOM_PHASE_LOAD)
			fprintf(out, "pred_after_load,");
		else
			fprintf(out, "pred_%s_peak,pred_%s_end,",
				oom_phase_column((enum oom_phase)p),
				oom_phase_column((enum oom_phase)p));
	}
	for (int b = 0; b < OOM_BUCKETS; b++)
		fprintf(out, "pred_%s,", oom_bucket_column((enum oom_bucket)b));
	fprintf(out, "pred_peak_phase,pred_allocated,pred_reserved_bytes,pred_context_bytes,pred_workspace_bytes,"
			"pred_nccl_bytes,pred_used_bytes,pred_error,pred_warning\n");
}

void oom_run_columns_write(FILE *out, const struct oom_eval *e, const struct oom_eval *card, uint64_t native,
			   uint64_t expandable)
{
	const uint64_t v[SCALARS] = {e->total_params,	 e->trainable_params,	e->active_params,
				     e->param_bytes,	 e->buffer_bytes,	e->input_bytes,
				     e->held_grads ? e->held_grads : e->grad_bytes,
				     e->held_states ? e->held_states : e->opt_bytes, e->saved_bytes,
				     e->saved_amp_bytes, e->saved_logits_bytes, native,
				     expandable,	 e->overall_peak};

	for (int i = 0; i < SCALARS; i++)
		if (v[i] == OOM_NOT_RUN)
			putc(',', out);
		else
			fprintf(out, "%llu,", (unsigned long long)v[i]);
	for (int p = 0; p < OOM_PHASES; p++) {
		fprintf(out, "%llu,", (unsigned long long)e->peak[p]);
		if (p != OOM_PHASE_LOAD)
			fprintf(out, "%llu,", (unsigned long long)e->end[p]);
	}
	for (int b = 0; b < OOM_BUCKETS; b++)
		fprintf(out, "%llu,", (unsigned long long)e->bucket[b]);
	fprintf(out, "%s,%llu,%llu,%llu,%llu,%llu,%llu,", oom_phase_column(e->peak_phase),
		(unsigned long long)card->allocated_bytes,
		(unsigned long long)(card->reserved_bytes + card->workspace_bytes),
		(unsigned long long)card->context_bytes, (unsigned long long)card->workspace_bytes,
		(unsigned long long)card->nccl_bytes, (unsigned long long)card->used_bytes);
}

void oom_run_columns_empty(FILE *out)
{
	for (int i = 0; i < SCALARS + 1 + 2 * (OOM_PHASES - 1) + OOM_BUCKETS + 7; i++)
		putc(',', out);
}
