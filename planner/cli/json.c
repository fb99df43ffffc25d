/* Machine output.  Names are stable; sizes are integers in bytes; "schema" names the version. */
#include "cli.h"

/* Escapes control characters, quotes and backslashes; bytes that are not UTF-8 become U+FFFD. */
void oom_json_string(FILE *out, const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	putc('"', out);
	while (*p) {
		int n = *p < 0x80 ? 1 : *p >= 0xc2 && *p < 0xe0 ? 2 : *p >= 0xe0 && *p < 0xf0 ? 3 : *p >= 0xf0 && *p < 0xf5 ? 4 : 0;

		for (int i = 1; i < n; i++)
			if ((p[i] & 0xc0) != 0x80)
				n = 0;
		if (!n) {
			fputs("\\ufffd", out);
			p++;
		} else if (*p < 0x20) {
			fprintf(out, "\\u%04x", *p++);
		} else if (*p == '"' || *p == '\\') {
			fprintf(out, "\\%c", *p++);
		} else {
			while (n--)
				putc(*p++, out);
		}
	}
	putc('"', out);
}

static void number(const char *name, uint64_t v)
{
	printf("\"%s\": %llu", name, (unsigned long long)v);
}

static void eval(const struct oom_eval *e)
{
	printf("{");
	number("total_params", e->total_params);
	printf(", ");
	number("trainable_params", e->trainable_params);
	printf(", ");
	number("active_params", e->active_params);
	printf(", ");
	number("param_bytes", e->param_bytes);
	printf(", ");
	number("grad_bytes", e->grad_bytes);
	printf(", ");
	number("optimizer_state_bytes", e->opt_bytes);
	printf(", \"phases\": {");
	for (int p = 0; p < OOM_PHASES; p++)
		printf("%s\"%s\": {\"peak_bytes\": %llu, \"end_bytes\": %llu}", p ? ", " : "", oom_phase_column((enum oom_phase)p),
		       (unsigned long long)e->peak[p], (unsigned long long)e->end[p]);
	printf("}, \"overall_peak_bytes\": %llu, \"peak_phase\": \"%s\", \"at_peak\": {", (unsigned long long)e->overall_peak,
	       oom_phase_column(e->peak_phase));
	for (int b = 0; b < OOM_BUCKETS; b++)
		printf("%s\"%s\": %llu", b ? ", " : "", oom_bucket_column((enum oom_bucket)b), (unsigned long long)e->bucket[b]);
	printf("}, ");
	number("reserved_bytes", e->reserved_bytes);
	printf(", \"reserved_replayed\": %s, ", e->reserved_replayed ? "true" : "false");
	number("context_bytes", e->context_bytes);
	printf(", ");
	number("workspace_bytes", e->workspace_bytes);
	printf(", ");
	number("nccl_bytes", e->nccl_bytes);
	printf(", ");
	number("used_bytes", e->used_bytes);
	printf("}");
}

static void plan(const struct oom_plan *p)
{
	printf("{");
	for (size_t i = 0; oom_knob_at(i); i++) {
		const struct oom_knob *k = oom_knob_at(i);
		char buf[140];

		oom_plan_get(p, k, buf, sizeof(buf));
		printf("%s\"%s\": ", i ? ", " : "", k->column);
		if (k->kind == OOM_KNOB_CHOICE || k->kind == OOM_KNOB_TEXT)
			oom_json_string(stdout, buf);
		else
			printf("%s", buf);
	}
	printf("}");
}

static void head(const struct oom_target *t, bool fits)
{
	printf("{\"schema\": \"oomplan/1\", \"fits\": %s, \"model_type\": ", fits ? "true" : "false");
	oom_json_string(stdout, oom_model_type(t->model));
	printf(", \"family\": ");
	oom_json_string(stdout, oom_model_family(t->model));
	printf(", \"warning\": ");
	oom_json_string(stdout, oom_model_warning(t->model));
	printf(", \"gpu\": ");
	oom_json_string(stdout, t->has_gpu ? t->gpu.name : "");
	printf(", \"capacity_bytes\": %llu, \"capacity_known_from\": \"%s\", \"note\": ", (unsigned long long)t->capacity,
	       t->has_gpu ? oom_capacity_kind_str(t->gpu.capacity_kind) : "user");
	oom_json_string(stdout, t->note);
}

void oom_json_plan(const struct oom_target *t, const struct oom_ladder *l)
{
	static const char *const outcomes[] = {"not_needed", "taken", "no_help", "not_applicable", "offered"};

	head(t, l->fits);
	printf(", \"effective_batch\": %lld, \"asked\": {\"fits\": %s, \"plan\": ", (long long)l->effective_batch,
	       l->start_fits ? "true" : "false");
	plan(&l->start);
	printf(", \"estimate\": ");
	eval(&l->start_eval);
	printf("}, \"plan\": ");
	plan(&l->plan);
	printf(", \"estimate\": ");
	eval(&l->eval);
	printf(", \"ladder\": [");
	for (int i = 0; i < OOM_RUNGS; i++) {
		const struct oom_rung *r = oom_rung_at((size_t)i);

		printf("%s{\"rung\": %d, \"name\": ", i ? ", " : "", r->number);
		oom_json_string(stdout, r->name);
		printf(", \"class\": ");
		oom_json_string(stdout, oom_class_str(r->cls));
		printf(", \"outcome\": \"%s\", \"before_bytes\": %llu, \"after_bytes\": %llu, \"fits\": %s, \"cost\": ",
		       outcomes[l->rung[i].outcome], (unsigned long long)l->rung[i].before_bytes,
		       (unsigned long long)l->rung[i].after_bytes, l->rung[i].fits ? "true" : "false");
		oom_json_string(stdout, r->cost);
		printf(", \"setting\": ");
		oom_json_string(stdout, r->setting);
		printf(", \"source\": ");
		oom_json_string(stdout, r->source);
		printf("}");
	}
	printf("]}\n");
}

void oom_json_estimate(const struct oom_target *t, const struct oom_plan *p, const struct oom_eval *e, bool fits)
{
	head(t, fits);
	printf(", \"plan\": ");
	plan(p);
	printf(", \"estimate\": ");
	eval(e);
	printf("}\n");
}
