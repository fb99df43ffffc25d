/* Ways to lay a model over GPUs that the search tries: as asked, sharded, and with the degrees that an engine has. */
#include <string.h>

#include "axes.h"

static bool add_layout(struct search_space *s, struct layout l)
{
	for (size_t i = 0; i < s->n_layouts; i++)
		if (!memcmp(&s->layout[i], &l, sizeof(l)))
			return true;
	if (s->n_layouts == MAX_LAYOUTS)
		return false;
	s->layout[s->n_layouts++] = l;
	return true;
}

/* Context parallelism cuts a sequence in 2 cp pieces, and pays where a rank keeps 8,192 tokens: so many have Llama 3's
 * last stage (131,072 over 16, arXiv:2407.21783 table 4) and the recipes for 16,384 over 2 of Megatron-Bridge (0.1.0,
 * recipes/llama/llama3_70b_16k.py).  With fewer its exchange of keys and values is not hidden. */
static bool can_cut(const struct search_space *s, int64_t cp)
{
	enum { RANK_TOKENS = 8192 };

	return cp == 1 || (s->asked->seq_len % (2 * cp) == 0 && s->asked->seq_len / cp >= RANK_TOKENS);
}

/* Megatron: every tp x pp x cp over the GPUs, ep over the data-parallel ones.  tp stays within a
 * node and divides the heads; a degree that divides nothing is refused by the engine anyway.
 * Stage 1 is its distributed optimizer. */
static bool megatron_layouts(struct search_space *s, struct layout l)
{
	const struct oom_model_shape m = oom_model_shape(s->model);
	const int64_t n = s->asked->gpus, node = n / s->asked->nodes,
		      layers = s->asked->num_layers ? s->asked->num_layers : (int64_t)m.n_layers;
	bool fits = true;

	for (int64_t tp = 1; tp <= node && tp <= 1024; tp++)
		for (int64_t pp = 1; n % tp == 0 && tp <= (int64_t)m.n_heads &&
				     (int64_t)m.n_heads % tp == 0 && pp <= n / tp && pp <= layers;
		     pp++)
			for (int64_t cp = 1;
			     n / tp % pp == 0 && layers % pp == 0 && cp <= n / tp / pp; cp++) {
				const int64_t dp = n / tp / pp / cp, experts = (int64_t)m.n_experts;

				if (n / tp / pp % cp || !can_cut(s, cp))
					continue;
				for (int64_t ep = 1;
				     ep <= (experts ? dp * tp * cp : 1) && ep <= experts + !experts;
				     ep++) {
					if (experts && (dp * tp * cp % ep || experts % ep))
						continue;
					for (l.zero = 0; l.zero < 2; l.zero++) {
						l.tp = tp;
						l.pp = pp;
						l.cp = cp;
						l.ep = ep;
						fits &= add_layout(s, l);
					}
				}
			}
	return fits;
}

/* Every stage of the engines worth a try. */
static void stages(struct search_space *s, int64_t engine, struct layout l)
{
	const struct oom_engine_info *e = oom_engine_at((size_t)engine);
	const bool nodes = e->hybrid && s->asked->nodes > 1;

	l.engine = engine;
	l.zero = e->replicates && engine == s->asked->engine ? 0 : e->shards_from;
	for (; l.zero <= e->shards_to; l.zero++)
		for (l.hybrid = 0; l.hybrid <= (nodes && l.zero == 3 ? 1 : 0); l.hybrid++)
			add_layout(s, l);
}

/* Experts over ranks that FSDP2 shards over: with all of them on each, and over every divisor of both. */
static bool add_experts(struct search_space *s, struct layout l)
{
	const int64_t experts = (int64_t)oom_model_shape(s->model).n_experts,
		      ranks = s->asked->gpus / l.tp / l.pp;
	bool fits = true;

	for (l.ep = 1; l.ep <= (experts ? ranks : 1) && l.ep <= experts + !experts; l.ep++)
		if (l.tp * l.pp * l.cp * l.ep > 1 && ranks % l.ep == 0 && (!experts || experts % l.ep == 0))
			fits &= add_layout(s, l);
	return fits;
}

/* FSDP2 with tensor, pipeline and context parallelism beside it: tp within a node, a pipeline of whole
 * layers; the table of what frameworks run has where context parallelism pays. */
static bool mixed_layouts(struct search_space *s, struct layout l)
{
	const struct oom_model_shape m = oom_model_shape(s->model);
	const int64_t n = s->asked->gpus, node = n / s->asked->nodes,
		      layers = s->asked->num_layers ? s->asked->num_layers : (int64_t)m.n_layers;
	bool fits = true;

	l.zero = oom_engine_at((size_t)l.engine)->shards_to;
	l.hybrid = l.bucket_view = 0;
	l.ep = 1;
	for (l.tp = 1; l.tp <= node && l.tp <= (int64_t)m.n_heads; l.tp++)
		for (l.pp = 1; n % l.tp == 0 && (int64_t)m.n_heads % l.tp == 0 && l.pp <= n / l.tp &&
			       l.pp <= layers; l.pp++)
			for (l.cp = 1; n / l.tp % l.pp == 0 && layers % l.pp == 0 && l.cp <= n / l.tp / l.pp;
			     l.cp++)
				if (n / l.tp / l.pp % l.cp == 0 &&
				    can_cut(s, l.cp))
					fits &= add_experts(s, l);
	return fits;
}

/* Of the engines worth a try the one that can, where the plan has no degrees of its own. */
static bool mixtures(struct search_space *s, struct layout l)
{
	const struct oom_engine_info *e = oom_engine_at((size_t)s->asked->engine);

	for (size_t i = 0; i < e->n_tries; i++) {
		l.engine = e->tries[i];
		if (oom_engine_at((size_t)l.engine)->mixes && l.tp * l.pp * l.cp * l.ep == 1)
			return mixed_layouts(s, l);
	}
	return true;
}

/* One GPU that keeps everything: FSDP moves all of it to the host, where DeepSpeed does not (4-bit
 * weights). */
static void alone(struct search_space *s, struct layout l)
{
	if (!oom_engine_at((size_t)l.engine)->plain)
		return;
	while (!oom_engine_at((size_t)l.engine)->for_many)
		l.engine++;
	l.zero = oom_engine_at((size_t)l.engine)->shards_to;
	add_layout(s, l);
}

/* Where nothing else fits: an engine that is tried last, and small buffers. */
static void resorts(struct search_space *s, struct layout l)
{
	const struct oom_engine_info *e = oom_engine_at((size_t)s->asked->engine);
	const size_t n = s->n_layouts;

	if (e->last_try != OOM_NO_ENGINE && s->asked->gpus > 1)
		stages(s, e->last_try, l);
	for (size_t i = 0; i < n; i++) {
		l = s->layout[i];
		l.narrow = oom_engine_at((size_t)l.engine)->narrows;
		if (l.narrow)
			add_layout(s, l);
	}
}

/* One GPU whose states and parameters go to the host: the engine that takes them there, with small buffers. */
static void alone_and_narrow(struct search_space *s, struct layout l)
{
	const struct oom_engine_info *e = oom_engine_at((size_t)l.engine);

	l.narrow = e->offloads && oom_engine_at((size_t)e->offloads_as)->narrows;
	if (!l.narrow)
		return;
	l.engine = e->offloads_as;
	for (l.zero = 2; l.zero <= oom_engine_at((size_t)l.engine)->shards_to; l.zero++)
		add_layout(s, l);
}

bool search_layouts(struct search_space *s)
{
	const struct oom_plan *a = s->asked;
	const struct oom_engine_info *e = oom_engine_at((size_t)a->engine);
	struct layout l = {a->engine, a->zero_stage, a->bucket_view, a->hybrid_shard,
			   a->tp,     a->pp,	     a->cp,	     a->ep,	     0, a->data_parallel};
	bool fits;

	add_layout(s, l);
	s->n_own = 1;
	if (a->gpus < 2) {
		alone(s, l);
		alone_and_narrow(s, l);
		s->n_frameworks = s->n_layouts;
		return true;
	}
	if (s->megatron) {
		fits = megatron_layouts(s, l);
		s->n_own = s->n_frameworks = s->n_layouts;
		return fits;
	}
	if (a->data_parallel) {         /* a process for each card: a launcher in place of plain python */
		l.data_parallel = 0;
		add_layout(s, l);
	}
	if (e->bucket_view) {
		l.bucket_view = 1;
		add_layout(s, l);
		l.bucket_view = a->bucket_view;
	}
	for (size_t i = 0; i < e->n_tries; i++)
		stages(s, e->tries[i], l);
	s->n_own = s->n_layouts;
	resorts(s, l);
	s->n_frameworks = s->n_layouts;
	fits = mixtures(s, l);
	if (s->degrees)
		s->n_own = s->n_frameworks = s->n_layouts;
	return fits;
}
