/* The embeddings of BERT and its relatives.
 * Reference: transformers 5.12,
 * models/{bert,roberta,ernie,roc_bert,layoutlm,markuplm,luke,tapas}/modeling_*.py. */
#include <string.h>

#include "bert.h"

/* What the embedding module's locals hold until it returns. */
enum { MAX_HELD = 16 };
struct held {
	struct oom_val x[MAX_HELD];
	int n;
};

static struct oom_val hold(struct oom_tape *t, struct held *h, struct oom_val x)
{
	if (h->n == MAX_HELD)
		oom_tape_fail(t, OOM_ERR_LIMIT, "embeddings with more than %d named tensors",
			      MAX_HELD);
	else
		h->x[h->n++] = oom_share(t, x);
	return x;
}

static struct oom_val zeros(struct oom_tape *t)
{
	return oom_new(t, "zeros", t->m_bs, D(1), OOM_I64);
}

/* LayoutLM: four tables of coordinates, two of them read twice; every embedding is a local, the
 * sum made left to right. */
static struct oom_val boxes(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			    struct held *h)
{
	static const char *const names[] = {"x_position_embeddings", "y_position_embeddings",
					    "h_position_embeddings", "w_position_embeddings"};
	static const uint8_t order[] = {0, 1, 0, 1, 2, 3};
	struct oom_reader r = a->rd;
	const uint64_t rows = oom_read_count_or(&r, "max_2d_position_embeddings", 1024);
	struct oom_val table[4], box = oom_new(t, "bbox", t->m_bs, D(4), OOM_I64), e[6];

	for (int i = 0; i < 4; i++) {
		t->scope = names[i];
		table[i] = oom_param(t, "weight", rows, a->d_model, OOM_P_EMBEDDING);
	}
	for (int i = 0; i < 6; i++) {
		struct oom_val ids = i < 4 ? oom_share(t, box) :
					     oom_new(t, "sub", t->m_bs, D(1), OOM_I64);

		ids.width = 1;
		e[i] = hold(t, h,
			    oom_op_embedding_param(t, table[order[i]], ids, rows, D(a->d_model)));
	}
	for (int i = 0; i < 6; i++)
		x = oom_op_add(t, x, e[i]);
	oom_drop(t, box);
	return x;
}

/* MarkupLM: 2 x max_depth narrow tables, joined, added and brought to the model's width. */
static struct oom_val xpaths(struct oom_tape *t, const struct oom_arch *a, struct held *h)
{
	struct oom_reader reader = a->rd, *r = &reader;
	const uint64_t depth = oom_read_count_or(r, "max_depth", 50),
		       d = oom_read_count_or(r, "xpath_unit_hidden_size", 32);
	const uint64_t rows[2] = {oom_read_count_or(r, "max_xpath_tag_unit_embeddings", 256),
				  oom_read_count_or(r, "max_xpath_subs_unit_embeddings", 1024)};
	const struct oom_dim wide = D(depth * d), h4 = D(4 * a->d_model);
	struct oom_val cat[2], ids[2], x;

	oom_linear_unused(t, "xpath_unitseq2_embeddings", depth * d, a->d_model, OOM_BIAS);
	/* depth embeddings one by one, alive until they are joined */
	for (int i = 0; i < 2; i++) {
		t->scope = i ? "xpath_subs_sub_embeddings" : "xpath_tag_sub_embeddings";
		ids[i] = oom_new(t, "xpath ids", t->m_bs, D(depth), OOM_I64);
		cat[i] = oom_param(t, "weight", rows[i] * depth, d, OOM_P_EMBEDDING);
		cat[i] = oom_op_embedding_param(t, cat[i], oom_keep(ids[i]), rows[i], D(d));
		cat[i] = hold(t, h, oom_op_copy(t, "cat", cat[i]));
	}
	x = oom_op_add(t, cat[0], cat[1]);
	x.width = wide.n;
	x = oom_op_linear(t, "xpath_unitseq2_inner", x, h4, OOM_BIAS);
	x = oom_op_dropout(t, oom_op_unary(t, OOM_RELU, x), a->dropout);
	x = oom_op_linear(t, "inner2emb", x, D(a->d_model), OOM_BIAS);
	oom_drop(t, ids[0]);
	oom_drop(t, ids[1]);
	return x;
}

/* TAPAS: a table of token types for every kind of them, added in place. */
static struct oom_val tapas_types(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_reader reader = a->rd, *r = &reader;
	const struct oom_key *k = oom_read_key(r, "type_vocab_sizes");
	const uint32_t n = k && k->type == OOM_KEY_LIST ? k->n_items : 0;
	struct oom_val ids = oom_new(t, "token type ids", t->m_bs, D(n ? n : 1), OOM_I64);

	for (uint32_t i = 0; i < n && i < 64; i++) {
		const double rows = oom_read_item_real(r, "type_vocab_sizes", i, 0);
		struct oom_val one = oom_share(t, ids);

		one.width = 1;
		x = oom_op_add_inplace(t, x,
				       oom_op_embedding(t, "token_type_embeddings", one,
							rows >= 1 && rows < 1e9 ? (uint64_t)rows :
										  1,
							D(a->d_model), 0));
	}
	oom_drop(t, ids);
	return x;
}

/* LUKE's entities: tables that a run without entities never reads. */
static void entities(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader reader = a->rd, *r = &reader;
	const uint64_t rows = oom_read_count_or(r, "entity_vocab_size", 500000),
		       d = oom_read_count_or(r, "entity_emb_size", 256);

	t->scope = "entity_embeddings";
	oom_drop(t, oom_param(t, "weight", rows, d, OOM_P_EMBEDDING | OOM_P_UNUSED));
	if (d != a->d_model)
		oom_linear_unused(t, "entity_embedding_dense", d, a->d_model, 0);
	oom_drop(t, oom_param(t, "position_embeddings", a->max_positions, a->d_model,
			      OOM_P_EMBEDDING | OOM_P_UNUSED));
	oom_drop(t, oom_param(t, "token_type_embeddings", a->type_vocab, a->d_model,
			      OOM_P_EMBEDDING | OOM_P_UNUSED));
	for (int i = 0; i < 2; i++)
		oom_drop(t, oom_param(t, "LayerNorm", 0, a->d_model, OOM_P_NORM | OOM_P_UNUSED));
	if (t->task == OOM_TASK_SEQ_CLS)
		return;
	oom_drop(t, oom_param(t, "entity_predictions.bias", 0, rows, OOM_P_UNUSED));
	/* the entities' decoder, and a bias beside the words' */
	if (!oom_read_bool(r, "tie_word_embeddings", true)) {
		oom_linear_unused(t, "decoder", d, rows, OOM_NO_QUANT);
		oom_drop(t, oom_param(t, "lm_head.bias", 0, a->vocab, OOM_P_UNUSED));
	} else if (oom_lora_adapts(t, "decoder", 0)) {  /* tied, it is adapted none the less */
		const uint64_t rank = (uint64_t)t->plan->lora_r;

		oom_param(t, "lora_A.weight", rank, d, OOM_P_LORA | OOM_P_LINEAR | OOM_P_UNUSED);
		oom_param(t, "lora_B.weight", rows, rank,
			  OOM_P_LORA | OOM_P_LINEAR | OOM_P_UNUSED);
	}
	oom_linear_unused(t, "dense", a->d_model, d, OOM_BIAS | OOM_NO_QUANT);
	for (int i = 0; i < 2; i++)
		oom_drop(t, oom_param(t, "entity_predictions", 0, d, OOM_P_UNUSED));
}

/* RoCBERT: words, shapes and sounds side by side, mapped to the model's width; types and
 * positions added in place. */
static struct oom_val roc(struct oom_tape *t, const struct oom_arch *a, struct oom_val w,
			  struct held *h)
{
	static const char *const on[2] = {"enable_shape", "enable_pronunciation"};
	static const char *const key[2][3] = {{"shape_embed", "shape_vocab_size",
					       "shape_embed_dim"},
					      {"pronunciation_embed", "pronunciation_vocab_size",
					       "pronunciation_embed_dim"}};
	struct oom_reader reader = a->rd, *r = &reader;
	const bool joined = oom_read_bool(r, "concat_input", true);
	struct oom_val x = joined ? oom_op_copy(t, "clone", w) : w, e;

	for (int i = 0; i < 2; i++) {
		const uint64_t rows = oom_read_count(r, key[i][1], 1),
			       d = oom_read_count(r, key[i][2], 1);

		t->scope = key[i][0];
		if (!joined || !oom_read_bool(r, on[i], true)) {
			oom_drop(t,
				 oom_param(t, "weight", rows, d, OOM_P_EMBEDDING | OOM_P_UNUSED));
			continue;
		}
		e = oom_param(t, "weight", rows, d, OOM_P_EMBEDDING);
		e = hold(t, h, oom_op_embedding_param(t, e, hold(t, h, zeros(t)), rows, D(d)));
		x = oom_op_cat(t, x, e, D(x.width + d));
	}
	return joined ? oom_op_linear(t, "map_inputs_layer", x, D(a->d_model), OOM_BIAS) : x;
}

/* Token types: gathered from a buffer and expanded over the batch (a row a token where positions
 * are), or fresh zeros. */
static struct oom_val type_ids(struct oom_tape *t, uint64_t flags)
{
	struct oom_val ids;

	if (flags & BERT_ZERO_TYPES)
		return zeros(t);
	ids = oom_new(t, "token type ids", flags & BERT_IDS_POSITIONS ? t->m_bs : t->m_s, D(1),
		      OOM_I64);
	ids.mono = t->m_bs;
	return ids;
}

static struct oom_val add_positions(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				    struct oom_val ids, struct held *h)
{
	struct oom_val e = oom_op_embedding(t, "position_embeddings", ids, a->max_positions,
					    D(a->d_embed), 0);

	hold(t, h, e);
	return a->extra[BERT_FLAGS] & BERT_ADD_INPLACE ? oom_op_add_inplace(t, x, e) :
							 oom_op_add(t, x, e);
}

static struct oom_val add_types(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				bool in_place, struct held *h)
{
	struct oom_val e = oom_op_embedding(t, "token_type_embeddings",
					    type_ids(t, a->extra[BERT_FLAGS]), a->type_vocab,
					    D(a->d_embed), 0);

	hold(t, h, e);
	return in_place ? oom_op_add_inplace(t, x, e) : oom_op_add(t, x, e);
}

struct oom_val oom_bert_embeddings(struct oom_tape *t, const struct oom_arch *a,
				   struct oom_val *word, struct oom_val *output)
{
	const uint64_t flags = a->extra[BERT_FLAGS];
	const bool roc_bert = !strcmp(a->model_type, "roc_bert"),
		   layout = !strcmp(a->model_type, "layoutlm");
	struct held h = {.n = 0};
	struct oom_val pos, x;
	struct oom_reader r = a->rd;

	if (!(flags & BERT_NO_BUFFER))
		oom_buffer(t, a->max_positions, OOM_I64);
	if (!(flags & (BERT_ZERO_TYPES | BERT_NO_TYPES)))
		oom_buffer(t, a->max_positions, OOM_I64);
	pos = flags & BERT_IDS_POSITIONS ? oom_positions_from_ids(t) :
					   oom_input(t, "position ids", t->m_s, 1, OOM_I64);
	t->scope = "word_embeddings";
	*word = oom_param(t, "weight", a->vocab, a->d_embed, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *word, oom_input(t, "input_ids", t->m_bs, 1, OOM_I64),
				   a->vocab, D(a->d_embed));
	x = hold(t, &h, oom_input_grads(t, x));
	if (roc_bert)
		x = roc(t, a, x, &h);
	if (!strcmp(a->model_type, "luke")) {
		entities(t, a);
		x = add_types(t, a, add_positions(t, a, x, pos, &h), false, &h);
	} else if (flags & BERT_POSITIONS_FIRST) {
		x = add_types(t, a, add_positions(t, a, x, pos, &h), false, &h);
	} else if (layout) {
		x = add_positions(t, a, x, pos, &h);
		x = add_types(t, a, boxes(t, a, x, &h), false, &h);
	} else if (!strcmp(a->model_type, "markuplm")) {
		x = add_types(t, a, add_positions(t, a, x, pos, &h), false, &h);
		x = oom_op_add(t, x, hold(t, &h, xpaths(t, a, &h)));
	} else if (!strcmp(a->model_type, "tapas")) {
		x = tapas_types(t, a, add_positions(t, a, x, pos, &h));
	} else {
		if (!(flags & BERT_NO_TYPES))
			x = add_types(t, a, x, roc_bert, &h);
		x = add_positions(t, a, x, pos, &h);
	}
	if (oom_read_bool(&r, "use_task_id", false) && !strcmp(a->model_type, "ernie"))
		x = oom_op_add_inplace(
			t, x,
			hold(t, &h,
			     oom_op_embedding(t, "task_type_embeddings", zeros(t),
					      oom_read_count_or(&r, "task_type_vocab_size", 3),
					      D(a->d_embed), 0)));
	if (!(flags & BERT_NO_EMBED_NORM))
		x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	x = oom_op_dropout(t, x, a->dropout);
	t->scope = "embeddings";
	while (h.n)
		oom_drop(t, h.x[--h.n]);
	/* the encoder maps them, the model keeps what it was given */
	if (!strcmp(a->model_type, "rembert")) {
		*output = oom_share(t, x);
		return oom_op_linear(t, "embedding_hidden_mapping_in", x, D(a->d_model), OOM_BIAS);
	}
	if (a->d_embed != a->d_model)
		x = oom_op_linear(t, "embeddings_project", x, D(a->d_model), OOM_BIAS);
	*output = oom_share(t, x);
	return x;
}
