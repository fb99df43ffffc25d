/* Which layers a pipeline rank holds.
 *
 * megatron/core/transformer/transformer_block.py get_num_layers_to_build,
 * pipeline_parallel_layer_layout.py; a stage is one model chunk: chunk j of rank r is stage
 * j x pp + r.
 *
 * Megatron refuses layers that do not divide until it is told how they lie.  What its recipes then
 * say, and what is taken here when a plan says nothing (oom_mg_split):
 *
 *   the embedding and the loss take the place of a layer each, where that makes them divide: 126
 *   layers over 8 x 8 stages (Megatron-Bridge, recipes of Llama 3.1 405B and Qwen3 235B);
 *   else every stage is rounded up and the last one takes what is left: 61 over 4 are 16, 16, 16
 *   and 13 (its recipes of DeepSeek-V3, set_deepseek_v3_pipeline_model_parallel_layout);
 *   so does DeepSpeed's partition by "type:transformer" (deepspeed/runtime/utils.py
 *   partition_balanced, which bounds the fullest stage), whose "type:transformer|embedding" is the
 *   first form;
 *   where that would leave stages empty they differ by one at most, the first ones holding more:
 *   torchtitan distributed/pipeline_parallel.py _generate_llm_fqn_per_model_part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

static int64_t stages_of(const struct oom_megatron *m)
{
	return m->pp * (m->vpp ? m->vpp : 1);
}

static bool said(const struct oom_megatron *m)
{
	return *m->layout || m->first_stage_layers || m->last_stage_layers || m->account_embedding ||
	       m->account_loss;
}

int64_t oom_mg_split(const struct oom_megatron *m)
{
	const int64_t n = stages_of(m), up = (m->layers + n - 1) / n;

	if (m->stack != OOM_MG_GPT || said(m) || m->layers % n == 0)
		return OOM_MG_SPLIT_EVEN;
	if ((m->layers + 2) % n == 0 && !m->pipe_engine)
		return OOM_MG_SPLIT_ENDS;
	return (n - 1) * up <= m->layers ? OOM_MG_SPLIT_UP : OOM_MG_SPLIT_BALANCED;
}

/* "([0]*3+[1]*11)" -> is layer i one of experts?  A plain number N means every N-th, from layer
 * 0 on. */
static bool is_moe(const struct oom_megatron *m, int64_t i)
{
	const char *p = m->moe_layer_freq;
	int64_t at = 0;

	if (!m->experts)
		return false;
	if (m->dense_layers)
		return i >= m->dense_layers;
	if (!strchr(p, '[')) {
		const long n = *p ? strtol(p, NULL, 10) : 1;

		return n <= 1 || i % n == 0;
	}
	while ((p = strchr(p, '['))) {
		int64_t reps = 1;
		const char *end = strchr(p, ']');
		int64_t n = 0;
		bool flag[64];

		for (const char *c = p + 1; end && c < end && n < 64; c++)
			if (*c == '0' || *c == '1')
				flag[n++] = *c == '1';
		if (!end || !n)
			return true;
		if (end[1] == '*')
			reps = strtol(end + 2, NULL, 10);
		if (reps > 0 && i < at + n * reps)
			return flag[(i - at) % n];
		at += n * (reps > 0 ? reps : 0);
		p = end;
	}
	return true;
}

/* Mostly they are all alike, and a search asks for thousands of layouts. */
static bool layers_alike(const struct oom_megatron *m)
{
	return !m->experts || (!m->dense_layers && !*m->moe_layer_freq);
}

static void add_layers(const struct oom_megatron *m, struct mg_chunk *c, int64_t first, int64_t n)
{
	if (n > 0 && layers_alike(m)) {
		*(m->experts ? &c->moe : &c->dense) += n;
		return;
	}
	for (int64_t i = first; i < first + n; i++) {
		if (is_moe(m, i))
			c->moe++;
		else
			c->dense++;
	}
}

/* A given layout: stages by '|', E embedding, t layer, m prediction layer, L loss. */
static size_t from_layout(const struct oom_megatron *m, int64_t r, struct mg_chunk out[MG_CHUNKS])
{
	int64_t stage = 0, layer = 0;
	size_t n = 0;

	if (r == 0)
		n = 1;
	for (const char *p = m->layout; *p; p++) {
		const bool mine = stage % m->pp == r;

		if (*p == '|') {
			stage++;
			if (stage % m->pp == r && n < MG_CHUNKS)
				n++;
			continue;
		}
		if (*p == 't') {
			if (mine && n)
				add_layers(m, &out[n - 1], layer, 1);
			layer++;
		}
		if (!mine || !n)
			continue;
		out[n - 1].embedding |= *p == 'E';
		out[n - 1].loss |= *p == 'L';
		out[n - 1].mtp += *p == 'm';
	}
	return n ? n : 1;
}

/* Layers of a rank where the ends of the pipeline were given. */
static int64_t of_rank(const struct oom_megatron *m, int64_t r)
{
	const int64_t ends = (m->first_stage_layers != 0) + (m->last_stage_layers != 0),
		      left = m->layers - m->first_stage_layers - m->last_stage_layers;

	if (r == 0 && m->first_stage_layers)
		return m->first_stage_layers;
	if (r == m->pp - 1 && m->last_stage_layers)
		return m->last_stage_layers;
	return m->pp > ends && left > 0 ? left / (m->pp - ends) : 0;
}

/* What is the same of all stages. */
struct split {
	int64_t stages, chunks, up;     /* up: layers of a stage, rounded up */
	int64_t each, more;             /* and rounded down; the first stages that have one more */
	int64_t first, last;            /* layers whose place the embedding and the loss take */
};

static struct split split_of(const struct oom_megatron *m)
{
	const int64_t n = stages_of(m);
	const bool balanced = m->split == OOM_MG_SPLIT_BALANCED,
		   ends = balanced || m->split == OOM_MG_SPLIT_ENDS;
	struct split s = {.stages = n, .chunks = m->vpp ? m->vpp : 1, .first = ends || m->account_embedding,
			  .last = ends || m->account_loss};
	const int64_t all = m->layers + s.first + s.last;

	s.up = (m->layers + n - 1) / n;
	s.each = all / n;
	s.more = balanced ? all % n : 0;
	return s;
}

/* Layers of stage k, which may be none. */
static int64_t of_stage(const struct oom_megatron *m, const struct split *s, int64_t k)
{
	int64_t here;

	if (m->first_stage_layers || m->last_stage_layers)
		return of_rank(m, k % m->pp) / s->chunks;
	if (m->split == OOM_MG_SPLIT_UP) {
		here = m->layers - k * s->up;
		return here > s->up ? s->up : here > 0 ? here : 0;
	}
	here = s->each + (k < s->more) - (k == 0 ? s->first : 0) - (k == s->stages - 1 ? s->last : 0);
	return here > 0 ? here : 0;
}

size_t oom_mg_chunks(const struct oom_megatron *m, int64_t r, struct mg_chunk out[MG_CHUNKS])
{
	const int64_t v = m->vpp ? (m->vpp < MG_CHUNKS ? m->vpp : MG_CHUNKS) : 1;
	struct split s;
	int64_t before = 0, k = 0;

	memset(out, 0, sizeof(out[0]) * (*m->layout ? MG_CHUNKS : (size_t)v));
	if (*m->layout)
		return from_layout(m, r, out);
	s = split_of(m);
	for (int64_t j = 0; j < v; j++, k++) {
		const int64_t mine = j * m->pp + r;

		/* which layers come before matters where some are others */
		for (; k < mine && !layers_alike(m); k++)
			before += of_stage(m, &s, k);
		k = mine;
		add_layers(m, &out[j], before, of_stage(m, &s, k));
		before += layers_alike(m) ? 0 : of_stage(m, &s, k);
	}
	out[0].embedding = r == 0;
	out[v - 1].loss = r == m->pp - 1;
	out[v - 1].mtp = out[v - 1].loss ? m->mtp_layers : 0;
	return (size_t)v;
}

bool oom_mg_ranks_alike(const struct oom_megatron *m)
{
	return !*m->layout && !(m->experts && (m->dense_layers || *m->moe_layer_freq)) &&
	       !m->first_stage_layers && !m->last_stage_layers;
}

/* ---- what was said ---- */

/* "Et*2|(tt|)*5t|tmL" -> "Ett|tt|tt|tt|tt|tt|t|tmL" (PipelineParallelLayerLayout.from_str: a letter or
 * a group in brackets, times a number; blanks and commas are nothing). */
enum oom_status oom_mg_expand_layout(const char *text, char *out, size_t cap, struct oom_error *err)
{
	size_t n = 0, group = 0, last = 0;
	bool open = false;

	for (const char *p = text; *p; p++) {
		if (strchr(" ,+'\"", *p))
			continue;
		if (*p == '(' && !open) {
			open = true;
			group = n;
		} else if (*p == ')' && open) {
			open = false;
			last = group;
		} else if (*p == '*' && n > last && !open) {
			char *end;
			const long times = strtol(p + 1, &end, 10);
			const size_t size = n - last;

			if (end == p + 1 || times < 1 || (size_t)times > cap / size ||
			    last + size * (size_t)times >= cap)
				return oom_error_set(err, OOM_ERR_INVALID,
						     "pp-layout: \"%.20s\" is no repetition that "
						     "fits into %zu letters", p, cap - 1);
			for (; n < last + size * (size_t)times; n++)
				out[n] = out[n - size];
			p = end - 1;
		} else if (*p == '*' && open && n > last) {
			/* within a group a number repeats the letter before it */
			char *end;
			const long times = strtol(p + 1, &end, 10);

			if (end == p + 1 || times < 1 || (size_t)times > cap || n + (size_t)times >= cap)
				return oom_error_set(err, OOM_ERR_INVALID,
						     "pp-layout: \"%.20s\" is no repetition that "
						     "fits into %zu letters", p, cap - 1);
			for (long i = 1; i < times; i++, n++)
				out[n] = out[n - 1];
			p = end - 1;
		} else if (strchr("Etm|L", *p) && n + 1 < cap) {
			if (!open)
				last = n;
			out[n++] = *p;
		} else {
			return oom_error_set(err, OOM_ERR_INVALID,
					     "pp-layout: \"%.20s\": E, t, m, L, |, (), *N, and no "
					     "more than %zu letters", p, cap - 1);
		}
	}
	out[n] = 0;
	return open ? oom_error_set(err, OOM_ERR_INVALID, "pp-layout: a bracket is not closed") :
		      OOM_OK;
}

/* One letter, or several as t*7. */
static size_t put(char *out, size_t cap, size_t n, char letter, int64_t times)
{
	int k = 0;

	if (times > 0 && n < cap)
		k = times > 1 ? snprintf(out + n, cap - n, "%c*%lld", letter, (long long)times) :
				snprintf(out + n, cap - n, "%c", letter);
	return n + (size_t)(k > 0 ? k : 0);
}

void oom_mg_write_layout(const struct oom_megatron *m, char *out, size_t cap)
{
	const struct split s = split_of(m);
	size_t n = 0;

	out[0] = 0;
	if (m->split == OOM_MG_SPLIT_EVEN || m->split == OOM_MG_SPLIT_ENDS)
		return;
	for (int64_t k = 0; k < s.stages; k++) {
		n = put(out, cap, n, '|', k > 0);
		n = put(out, cap, n, 'E', k == 0);
		n = put(out, cap, n, 't', of_stage(m, &s, k));
		n = put(out, cap, n, 'm', k == s.stages - 1 ? m->mtp_layers : 0);
		n = put(out, cap, n, 'L', k == s.stages - 1);
	}
	if (n >= cap)
		out[0] = 0;             /* longer than the knob: nothing rather than a part */
}

int64_t oom_mg_layout_chunks(const struct oom_megatron *m)
{
	int64_t stages = 1;

	for (const char *p = m->layout; *p; p++)
		stages += *p == '|';
	return stages % m->pp || stages == m->pp ? 0 : stages / m->pp;
}

static enum oom_status layout_fits(const struct oom_megatron *m, struct oom_error *err)
{
	int64_t stages = 1, layers = 0;

	for (const char *p = m->layout; *p; p++) {
		stages += *p == '|';
		layers += *p == 't';
	}
	if (stages != stages_of(m))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "pp-layout: %lld stages, pp %lld x vpp %lld are %lld",
				     (long long)stages, (long long)m->pp,
				     (long long)(m->vpp ? m->vpp : 1), (long long)stages_of(m));
	if (layers != m->layers)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "pp-layout: %lld layers (t), the model has %lld",
				     (long long)layers, (long long)m->layers);
	return OOM_OK;
}

/* The assertions of get_num_layers_to_build. */
enum oom_status oom_mg_check_stages(const struct oom_megatron *m, struct oom_error *err)
{
	const int64_t n = stages_of(m), v = m->vpp ? m->vpp : 1,
		      ends = (m->first_stage_layers != 0) + (m->last_stage_layers != 0),
		      left = m->layers - m->first_stage_layers - m->last_stage_layers,
		      all = m->layers + m->account_embedding + m->account_loss;

	if (m->stack != OOM_MG_GPT)
		return OOM_OK;
	if (*m->layout)
		return layout_fits(m, err);
	if (n > m->layers + 2)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "pp: %lld layers do not divide over %lld pipeline stages: some "
				     "would have none", (long long)m->layers, (long long)n);
	if (ends && (m->account_embedding || m->account_loss))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "pp-first-layers and pp-last-layers exclude pp-embedding and "
				     "pp-loss");
	if (ends && m->pp > ends && left >= 0 && (left % (m->pp - ends) || left / (m->pp - ends) % v))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "pp-first-layers, pp-last-layers: the other %lld layers do not "
				     "divide over %lld pipeline ranks of %lld stages each",
				     (long long)left, (long long)(m->pp - ends), (long long)v);
	if (ends && (left < 0 || (m->pp <= ends && left) || m->first_stage_layers % v ||
		     m->last_stage_layers % v))
		return oom_error_set(err, OOM_ERR_INVALID,
				     "pp-first-layers, pp-last-layers: %lld and %lld of %lld layers on "
				     "%lld pipeline ranks of %lld stages each",
				     (long long)m->first_stage_layers,
				     (long long)m->last_stage_layers, (long long)m->layers,
				     (long long)m->pp, (long long)v);
	if (!ends && (m->account_embedding || m->account_loss) && all % n)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "pp: %lld layers with %lld for embedding and loss do not divide "
				     "over %lld pipeline stages", (long long)m->layers,
				     (long long)(all - m->layers), (long long)n);
	return OOM_OK;
}
