/* The embeddings of BERT and its relatives.
 * Reference: transformers 5.12,
 * models/{bert,roberta,ernie,roc_bert,layoutlm,markuplm,luke,tapas}/modeling_*.py. */
#include "bert.h"

static struct oom_val zeros(struct oom_tape *t)
{
	return oom_new(t, "zeros", t->m_bs, D(1), OOM_I64);
}

struct oom_val bert_zero_types(struct oom_frame *f, const struct oom_arch *a)
{
	return bert_kind(a)->zero_types ? oom_name(f, zeros(f->t)) : oom_none();
}

/* Token types: the model's zeros, a view of a buffer, or gathered from it and expanded over the batch (a
 * row per token where positions are). */
static struct oom_val type_ids(struct oom_tape *t, const struct bert_kind *kind,
			       struct oom_val given)
{
	struct oom_val ids;

	if (kind->zero_types)
		return given;
	ids = kind->shown_types ?
		      oom_input(t, "token type ids", t->m_s, 1, OOM_I64) :
		      oom_new(t, "token type ids", kind->ids_positions ? t->m_bs : t->m_s, D(1), OOM_I64);
	ids.mono = t->m_bs;
	return ids;
}

static struct oom_val positions(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				const struct bert_ids *ids)
{
	struct oom_val e = oom_op_embedding(f->t, "position_embeddings", ids->positions, a->max_positions,
					    D(a->d_embed), 0);

	e = oom_name(f, e);
	return bert_kind(a)->add_inplace ? oom_op_add_inplace(f->t, x, e) : oom_op_add(f->t, x, e);
}

static struct oom_val types(struct oom_frame *f, const struct oom_arch *a,
			    const struct bert_ids *ids)
{
	return oom_name(f, oom_type_embeddings(f->t, a, D(a->d_embed),
					       type_ids(f->t, bert_kind(a), ids->types)));
}

static struct oom_val bert_embed(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				 const struct bert_ids *ids)
{
	if (!bert_kind(a)->no_types)
		x = oom_op_add(f->t, x, types(f, a, ids));
	return positions(f, a, x, ids);
}

struct oom_val bert_embed_positions_first(struct oom_frame *f, const struct oom_arch *a,
					  struct oom_val x, const struct bert_ids *ids)
{
	x = positions(f, a, x, ids);
	return oom_op_add(f->t, x, types(f, a, ids));
}

/* ---- LayoutLM ---- */

void bert_read_layoutlm(struct oom_arch *a)
{
	bert_own(a)->layout.rows = oom_read_count_or(&a->rd, "max_2d_position_embeddings", 1024);
}

/* The six embeddings of a box between positions and types, the sum made left to right. */
struct oom_val bert_embed_layoutlm(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				   const struct bert_ids *ids)
{
	const struct oom_dim h = D(a->d_model), width[4] = {h, h, h, h};
	struct oom_frame box = {.t = f->t};
	struct oom_val e[6];

	x = positions(f, a, x, ids);
	oom_box_embeddings(&box, bert_of(a)->layout.rows, width, "sub", e);
	oom_name_each(f, e, 6);
	for (int i = 0; i < 6; i++)
		x = oom_op_add(f->t, x, e[i]);
	oom_leave(&box, oom_none());
	return oom_op_add(f->t, x, types(f, a, ids));
}

/* ---- MarkupLM ---- */

void bert_read_markuplm(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bert *own = bert_own(a);

	own->markup.depth = oom_read_count_or(r, "max_depth", 50);
	own->markup.width = oom_read_count_or(r, "xpath_unit_hidden_size", 32);
	own->markup.rows[0] = oom_read_count_or(r, "max_xpath_tag_unit_embeddings", 256);
	own->markup.rows[1] = oom_read_count_or(r, "max_xpath_subs_unit_embeddings", 1024);
	if (own->markup.depth > 4096 || own->markup.width > 1 << 20)
		oom_read_fail(r, "max_depth is more than 4096, or xpath_unit_hidden_size more than "
				 "2^20");
}

/* 2 x max_depth narrow tables, joined, added and brought to the model's width. */
static struct oom_val xpaths(struct oom_frame *f, const struct oom_arch *a)
{
	const uint64_t depth = bert_of(a)->markup.depth, d = bert_of(a)->markup.width,
		       *rows = bert_of(a)->markup.rows;
	const struct oom_dim wide = D(depth * d), h4 = D(4 * a->d_model);
	struct oom_tape *t = f->t;
	struct oom_frame g = {.t = t};
	struct oom_val cat[2], ids, x;

	oom_linear_unused(t, "xpath_unitseq2_embeddings", depth * d, a->d_model, OOM_BIAS);
	/* depth embeddings one by one, alive until they are joined */
	for (int i = 0; i < 2; i++) {
		t->scope = i ? "xpath_subs_sub_embeddings" : "xpath_tag_sub_embeddings";
		ids = oom_name(&g, oom_new(t, "xpath ids", t->m_bs, D(depth), OOM_I64));
		x = oom_param(t, "weight", rows[i] * depth, d, OOM_P_EMBEDDING);
		x = oom_op_embedding_param(t, x, ids, rows[i], D(d));
		cat[i] = oom_name(f, oom_op_copy(t, "cat", x));
	}
	x = oom_op_add(t, cat[0], cat[1]);
	x.width = wide.n;
	x = oom_op_linear(t, "xpath_unitseq2_inner", x, h4, OOM_BIAS);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_RELU, x), a->dropout);
	return oom_leave(&g, oom_op_linear(t, "inner2emb", x, D(a->d_model), OOM_BIAS));
}

struct oom_val bert_embed_markuplm(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				   const struct bert_ids *ids)
{
	x = bert_embed_positions_first(f, a, x, ids);
	return oom_op_add(f->t, x, oom_name(f, xpaths(f, a)));
}

/* ---- TAPAS ---- */

void bert_read_tapas(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const struct oom_key *k = oom_read_key(r, "type_vocab_sizes");
	const uint32_t n = k && k->type == OOM_KEY_LIST ? k->n_items : 0;
	struct bert *own = bert_own(a);

	own->tapas.n = n < 64 ? n : 64;
	for (uint32_t i = 0; i < own->tapas.n; i++) {
		const double rows = oom_read_item_real(r, "type_vocab_sizes", i, 0);

		own->tapas.rows[i] = rows >= 1 && rows < 1e9 ? (uint32_t)rows : 1;
	}
}

/* A table of token types for every kind of them, added in place. */
struct oom_val bert_embed_tapas(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
				const struct bert_ids *ids)
{
	const uint32_t n = bert_of(a)->tapas.n;
	struct oom_tape *t = f->t;
	struct oom_frame g = {.t = t};
	struct oom_val one;

	x = positions(f, a, x, ids);
	one = oom_name(&g, oom_new(t, "token type ids", t->m_bs, D(n ? n : 1), OOM_I64));
	one.width = 1;
	for (uint32_t i = 0; i < n; i++)
		x = oom_op_add_inplace(t, x,
				       oom_op_embedding(t, "token_type_embeddings", one,
							bert_of(a)->tapas.rows[i], D(a->d_model),
							0));
	oom_leave(&g, oom_none());
	return x;
}

/* ---- LUKE ---- */

void bert_read_luke(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bert *own = bert_own(a);

	own->luke.rows = oom_read_count_or(r, "entity_vocab_size", 500000);
	own->luke.width = oom_read_count_or(r, "entity_emb_size", 256);
	own->luke.tied = oom_read_bool(r, "tie_word_embeddings", true);
	own->entity_queries = oom_read_bool(r, "use_entity_aware_attention", true);
}

/* Where entities are predicted: their decoder, and a bias beside the words'. */
static void entity_head(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t rows = bert_of(a)->luke.rows, d = bert_of(a)->luke.width;

	oom_param(t, "entity_predictions.bias", 0, rows, OOM_P_UNUSED);
	if (!bert_of(a)->luke.tied) {
		oom_linear_unused(t, "decoder", d, rows, OOM_NO_QUANT);
		oom_param(t, "lm_head.bias", 0, a->vocab, OOM_P_UNUSED);
	} else {                        /* tied, it is adapted none the less */
		struct oom_linear l = {.name = "decoder", .in = d, .out = {rows, NULL}};

		oom_adapter_open(t, &l, OOM_P_UNUSED);
	}
	oom_linear_unused(t, "dense", a->d_model, d, OOM_BIAS | OOM_NO_QUANT);
	for (int i = 0; i < 2; i++)
		oom_param(t, "entity_predictions", 0, d, OOM_P_UNUSED);
}

/* Entities have tables that a run without entities never reads. */
struct oom_val bert_embed_luke(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
			       const struct bert_ids *ids)
{
	const uint64_t rows = bert_of(a)->luke.rows, d = bert_of(a)->luke.width;
	struct oom_tape *t = f->t;

	t->scope = "entity_embeddings";
	oom_param(t, "weight", rows, d, OOM_P_EMBEDDING | OOM_P_UNUSED);
	if (d != a->d_model)
		oom_linear_unused(t, "entity_embedding_dense", d, a->d_model, 0);
	oom_param(t, "position_embeddings", a->max_positions, a->d_model,
		  OOM_P_EMBEDDING | OOM_P_UNUSED);
	oom_param(t, "token_type_embeddings", a->type_vocab, a->d_model,
		  OOM_P_EMBEDDING | OOM_P_UNUSED);
	for (int i = 0; i < 2; i++)
		oom_param(t, "LayerNorm", 0, a->d_model, OOM_P_NORM | OOM_P_UNUSED);
	if (t->task != OOM_TASK_SEQ_CLS)
		entity_head(t, a);
	return bert_embed_positions_first(f, a, x, ids);
}

/* ---- RoCBERT ---- */

void bert_read_roc(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	struct bert *own = bert_own(a);

	own->roc.joined = oom_read_bool(r, "concat_input", true);
	own->roc.on[0] = oom_read_bool(r, "enable_shape", true);
	own->roc.rows[0] = oom_read_count(r, "shape_vocab_size", 1);
	own->roc.width[0] = oom_read_count(r, "shape_embed_dim", 1);
	own->roc.on[1] = oom_read_bool(r, "enable_pronunciation", true);
	own->roc.rows[1] = oom_read_count(r, "pronunciation_vocab_size", 1);
	own->roc.width[1] = oom_read_count(r, "pronunciation_embed_dim", 1);
}

/* Words, shapes and sounds side by side, mapped to the model's width; types and positions added in
 * place. */
struct oom_val bert_embed_roc(struct oom_frame *f, const struct oom_arch *a, struct oom_val x,
			      const struct bert_ids *ids)
{
	static const char *const names[2] = {"shape_embed", "pronunciation_embed"};
	const struct bert *own = bert_of(a);
	struct oom_tape *t = f->t;
	struct oom_val e;

	if (own->roc.joined)
		x = oom_op_copy(t, "clone", x);
	for (int i = 0; i < 2; i++) {
		const uint64_t rows = own->roc.rows[i], d = own->roc.width[i];
		const bool read = own->roc.joined && own->roc.on[i];

		t->scope = names[i];
		e = oom_param(t, "weight", rows, d, OOM_P_EMBEDDING | (read ? 0 : OOM_P_UNUSED));
		if (!read)
			continue;
		e = oom_op_embedding_param(t, e, oom_name(f, zeros(t)), rows, D(d));
		x = oom_op_cat(t, x, oom_name(f, e), D(x.width + d));
	}
	if (own->roc.joined)
		x = oom_op_linear(t, "map_inputs_layer", x, D(a->d_model), OOM_BIAS);
	return positions(f, a, oom_op_add_inplace(t, x, types(f, a, ids)), ids);
}

struct oom_val bert_embeddings(struct oom_tape *t, const struct oom_arch *a, struct oom_val types,
			       struct oom_val *word)
{
	const struct bert_kind *kind = bert_kind(a);
	const struct oom_dim e = D(a->d_embed);
	struct oom_frame f = {.t = t};
	const uint64_t places = a->max_positions - (kind->more_positions ? 2 : 0);
	struct bert_ids ids = {.types = types};
	struct oom_val x;

	/* position_ids and token_type_ids; MRA, YOSO and Nystromformer have both without the two rows more */
	if (!kind->no_buffer)
		oom_buffer(t, places, OOM_I64);
	if (kind->more_positions || (!kind->zero_types && !kind->no_types))
		oom_buffer(t, places, OOM_I64);
	ids.positions = kind->ids_positions ? oom_positions_from_ids(t) :
				    oom_input(t, "position ids", t->m_s, 1, OOM_I64);
	x = oom_name(&f, oom_word_embeddings(t, a, "word_embeddings", e, word));
	x = kind->embed ? kind->embed(&f, a, x, &ids) : bert_embed(&f, a, x, &ids);
	if (bert_of(a)->task_types)
		x = oom_op_add_inplace(t, x,
				       oom_name(&f, oom_op_embedding(t, "task_type_embeddings",
								     zeros(t),
								     bert_of(a)->task_types, e,
								     0)));
	if (!kind->no_embed_norm)
		x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	t->scope = "embeddings";
	return oom_leave(&f, x);
}
