/* Machine output.  Names are stable; sizes are integers in bytes; "schema" names the version. */
#include "cli.h"
#include "json.h"

static void limits(struct oom_json *j, const struct oom_target *t, const struct oom_judged *x)
{
	if (!t->q.host_ram_bytes)
		return;
	oom_json_uint(j, "host_ram_bytes", t->q.host_ram_bytes);
	oom_json_text(j, "breaks_first", oom_limit_str(x->first_limit));
}

static void eval(struct oom_json *j, const struct oom_judged *x)
{
	const struct oom_eval *e = &x->eval;
	char warnings[OOM_WARNINGS_SIZE];

	oom_json_object(j, "estimate");
	oom_json_text(j, "warning", oom_warnings_of(NULL, e, warnings));
	oom_json_uint(j, "total_params", e->total_params);
	oom_json_uint(j, "trainable_params", e->trainable_params);
	oom_json_uint(j, "active_params", e->active_params);
	oom_json_uint(j, "param_bytes", e->param_bytes);
	oom_json_uint(j, "grad_bytes", e->held_grads ? e->held_grads : e->grad_bytes);
	oom_json_uint(j, "optimizer_state_bytes", e->held_states ? e->held_states : e->opt_bytes);
	oom_json_object(j, "phases");
	for (int p = 0; p < OOM_PHASES; p++) {
		if (!oom_phase_occurs(e, (enum oom_phase)p))
			continue;               /* answers where none are generated, a run that never evaluates */
		oom_json_object(j, oom_phase_column((enum oom_phase)p));
		oom_json_uint(j, "peak_bytes", e->peak[p]);
		oom_json_uint(j, "end_bytes", e->end[p]);
		oom_json_end(j);
	}
	oom_json_end(j);
	oom_json_uint(j, "overall_peak_bytes", e->overall_peak);
	oom_json_uint(j, "allocated_bytes", e->allocated_bytes);
	oom_json_text(j, "peak_phase", oom_phase_column(e->peak_phase));
	oom_json_object(j, "at_peak");
	for (int b = 0; b < OOM_BUCKETS; b++)
		oom_json_uint(j, oom_bucket_column((enum oom_bucket)b), e->bucket[b]);
	oom_json_end(j);
	oom_json_uint(j, "reserved_bytes", e->reserved_bytes);
	oom_json_bool(j, "reserved_replayed", e->reserved_replayed);
	oom_json_uint(j, "context_bytes", e->context_bytes);
	oom_json_uint(j, "workspace_bytes", e->workspace_bytes);
	oom_json_uint(j, "nccl_bytes", e->nccl_bytes);
	oom_json_uint(j, "used_bytes", e->used_bytes);
	oom_json_uint(j, "wanted_bytes", e->wanted_bytes);
	oom_json_uint(j, "retries", e->retries);
	oom_json_bool(j, "dies_when_emptied", e->died);
	oom_json_uint(j, "used_bytes_estimated", e->used_bytes_estimated);
	oom_json_uint(j, "floor_bytes", e->floor_bytes);
	oom_json_uint(j, "fullest_stage", e->stage);
	oom_json_uint(j, "stages", e->n_stages);
	oom_json_uint(j, "emptiest_peak_bytes", e->least_peak);
	oom_json_uint(j, "host_pinned_bytes", e->host_pinned_bytes);
	oom_json_uint(j, "host_pageable_bytes", e->host_pageable_bytes);
	oom_json_uint(j, "nvme_bytes", e->nvme_bytes);
	oom_json_uint(j, "node_ram_bytes", x->host.ram_peak);
	oom_json_uint(j, "node_disk_bytes", x->host.disk_peak);
	oom_json_uint(j, "node_page_cache_bytes", x->host.page_cache);
	oom_json_end(j);
}

static void plan(struct oom_json *j, const char *name, const struct oom_plan *p)
{
	struct oom_plan copy = *p;

	oom_json_object(j, name);
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_option *k = oom_knob_at(i);
		char buf[OOM_VALUE_SIZE];

		if (k->kind == OOM_OPTION_COUNT)
			oom_json_int(j, k->column, *oom_plan_field(&copy, k));
		else if (k->kind == OOM_OPTION_FLAG)
			oom_json_bool(j, k->column, *oom_plan_field(&copy, k) != 0);
		else if (k->kind == OOM_OPTION_REAL)
			oom_json_real(j, k->column,
				      *(const double *)(const void *)((const char *)p + k->offset));
		else
			oom_json_text(j, k->column, oom_plan_get(p, k, buf, sizeof(buf)));
	}
	oom_json_end(j);
}

static void head(struct oom_json *j, const struct oom_target *t, bool fits)
{
	oom_json_object(j, NULL);
	oom_json_text(j, "schema", "oomplan/1");
	oom_json_bool(j, "fits", fits);
	oom_json_text(j, "model_type", oom_model_type(t->model));
	oom_json_text(j, "family", oom_model_family(t->model));
	oom_json_text(j, "warning", oom_model_warning(t->model));
	oom_json_text(j, "unknown_keys", oom_model_unknown_keys(t->model));
	oom_json_text(j, "gpu", t->q.gpu ? t->gpu.name : "");
	oom_json_uint(j, "capacity_bytes", t->q.capacity_bytes);
	oom_json_text(j, "capacity_known_from",
		      t->q.gpu ? oom_capacity_kind_str(t->gpu.capacity_kind) : "user");
	oom_json_text(j, "note", t->note);
	oom_json_text(j, "precision_default", t->q.precision_note);
	oom_json_text(j, "inputs_default", oom_model_unasked(t->model, &t->q.plan));
}

static void rules(struct oom_json *j, const char *name, const struct oom_compat_set *broken)
{
	struct oom_compat_rule r;

	oom_json_array(j, name);
	for (size_t i = 0; oom_compat_next(broken, &i) && oom_compat_rule_at(i, &r); i++) {
		oom_json_object(j, NULL);
		oom_json_text(j, "rule", r.name);
		oom_json_text(j, "verdict", oom_compat_verdict_str(r.verdict));
		oom_json_text(j, "happens", r.happens);
		oom_json_text(j, "setting", r.setting);
		oom_json_text(j, "instead", r.instead);
		oom_json_text(j, "source", r.source);
		oom_json_end(j);
	}
	oom_json_end(j);
}

/* What frameworks make of the plan. */
static void compat(struct oom_json *j, const struct oom_target *t, const struct oom_judged *x)
{
	oom_json_bool(j, "tight", oom_is_tight(t, &x->plan, &x->eval));
	oom_json_uint(j, "evaluation_used_bytes", x->eval_used_bytes);
	oom_json_bool(j, "evaluation_fits", x->eval_fits);
	oom_json_bool(j, "launches", x->launches);
	rules(j, "compat", &x->broken);
}

static void rung(struct oom_json *j, const struct oom_rung *r, const struct oom_rung_result *s)
{
	static const char *const outcomes[] = {"not_needed", "taken", "no_help", "not_applicable",
					       "offered",    "given_back", "refused"};

	oom_json_object(j, NULL);
	oom_json_int(j, "rung", r->number);
	oom_json_text(j, "name", r->name);
	oom_json_text(j, "class", oom_class_str(r->cls));
	oom_json_text(j, "outcome", outcomes[s->outcome]);
	oom_json_uint(j, "before_bytes", s->before_bytes);
	oom_json_uint(j, "after_bytes", s->after_bytes);
	oom_json_bool(j, "fits", s->fits);
	oom_json_text(j, "cost", r->cost);
	oom_json_text(j, "setting", r->setting);
	oom_json_text(j, "source", r->source);
	oom_json_end(j);
}

void oom_json_plan(const struct oom_job *job, const struct oom_target *t,
		   const struct oom_answer *a)
{
	struct oom_json j = {.out = stdout};

	head(&j, t, a->best.fits);
	limits(&j, t, &a->best);
	oom_json_int(&j, "effective_batch", a->ladder.effective_batch);
	oom_json_object(&j, "asked");
	oom_json_bool(&j, "fits", a->as_asked.fits_gpu);
	plan(&j, "plan", &a->as_asked.plan);
	compat(&j, t, &a->as_asked);
	eval(&j, &a->as_asked);
	oom_json_end(&j);
	plan(&j, "plan", &a->best.plan);
	compat(&j, t, &a->best);
	eval(&j, &a->best);
	oom_json_time(&j, t, &a->best.plan, &a->best.eval);
	oom_json_array(&j, "ladder");
	for (int i = 0; i < OOM_RUNGS; i++)
		rung(&j, oom_rung_at((size_t)i), &a->ladder.rung[i]);
	oom_json_end(&j);
	oom_json_bool(&j, "ladder_fits", a->ladder.fits);
	plan(&j, "ladder_plan", &a->ladder.plan);
	rules(&j, "ladder_compat", &a->ladder_broken);
	oom_json_lengths(&j, t);
	oom_json_calibrated(&j, t, &a->best.plan, &a->best.eval);
	oom_json_search(&j, job, t, &a->as_asked.plan, &a->search);
	oom_json_elsewhere(&j, a);
	oom_from_json(&j, job, &t->q.plan, &a->best.plan);
	oom_json_end(&j);
}

void oom_json_estimate(const struct oom_job *job, const struct oom_target *t,
		       const struct oom_judged *x)
{
	struct oom_json j = {.out = stdout};

	head(&j, t, x->fits);
	limits(&j, t, x);
	plan(&j, "plan", &x->plan);
	compat(&j, t, x);
	eval(&j, x);
	oom_json_time(&j, t, &x->plan, &x->eval);
	oom_json_lengths(&j, t);
	oom_json_calibrated(&j, t, &x->plan, &x->eval);
	oom_from_json(&j, job, &t->q.plan, &x->plan);
	oom_json_end(&j);
}
