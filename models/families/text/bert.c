/* BERT, RoBERTa and the encoders built like them: learned positions, plain feed-forwards, norms
 * after or before. Reference: transformers 5.12, models/bert/modeling_bert.py,
 * models/roberta/modeling_roberta.py and those of the types below. */
#include "blocks/sparse.h"
#include "blocks/tokens.h"
#include "bert.h"

/* BigBird attends in blocks beyond the length up to which it falls back on full attention. */
static bool bert_in_blocks(struct oom_tape *t, const struct oom_arch *a)
{
	return bert_of(a)->block && oom_cond_above(t, t->m_s, bert_of(a)->full_to);
}

/* BigBird's masks: ones of its own are fp32, those of a batch are whole numbers; einsum makes the
 * first what autocast wants. */
static enum oom_dtype bert_mask_type(const struct oom_tape *t)
{
	return t->plan->padding_mask ? OOM_I64 : t->amp ? (enum oom_dtype)t->amp_dt : OOM_F32;
}

/* p: queries, keys, values as heads; consumed */
static struct oom_val bert_block_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
					   const struct oom_val p[3], enum oom_dtype dt,
					   struct oom_frame *caller)
{
	const struct oom_arch *a = l->a;
	const struct oom_blocks b = {.block = bert_of(a)->block, .random = bert_of(a)->random,
				     .heads = a->n_heads, .d = a->head_dim,
				     .mask_dt = bert_mask_type(t), .dt = dt};
	struct oom_frame f = {.t = t};
	struct oom_val y, weights;

	/* band_mask.to(hidden_states.dtype), in every layer */
	if (dt != b.mask_dt)
		oom_name(&f, oom_new_like(t, "_to_copy", l->mask, dt));
	y = oom_block_attention(t, &b, p[0], p[1], p[2], &weights);
	oom_name(caller, weights);
	return oom_leave(&f, y);
}

static struct oom_val bert_window_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
					    struct oom_val x)
{
	const struct oom_arch *a = l->a;
	const struct oom_window w = {.width = bert_of(a)->window, .heads = a->n_heads,
				     .d = a->head_dim, .masked = l->mask,
				     .dropout = a->attn_dropout};

	return oom_window_attention(t, &w, x);
}

/* Queries, keys and values; LUKE's queries between words and entities idle. */
static void bert_project(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			 struct oom_val p[3])
{
	static const char *const names[3] = {"query", "key", "value"},
				 *const idle[3] = {"w2e_query", "e2w_query", "e2e_query"};
	const unsigned bias = bert_of(a)->bias ? OOM_BIAS : 0;

	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(t, oom_op_linear(t, names[i], x, D(a->d_model), bias));
	if (bert_of(a)->entity_queries)
		for (int i = 0; i < 3; i++)
			oom_linear_unused(t, idle[i], a->d_model, a->d_model, OOM_BIAS);
}

static struct oom_val bert_attention(struct oom_tape *t, const struct oom_decoder_layer *l,
				     struct oom_val x, struct oom_frame *caller)
{
	const struct oom_arch *a = l->a;
	const struct bert_kind *kind = bert_kind(a);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_val p[3];

	if (kind->attention == BERT_WINDOW)
		return bert_window_attention(t, l, x);
	at.mask = l->mask;
	at.causal = bert_of(a)->causal;
	at.softmax_as_is = at.no_cast_back = !kind->softmax_fp32;
	at.written_out = kind->written_out;
	at.scores_local = kind->written_out && !kind->softmax_fp32;
	/* "attention_output, _ = self.attention(...)" */
	at.caller = !kind->written_out || kind->names_weights ? caller : NULL;
	at.returned = kind->keeps_weights;
	bert_project(t, a, x, p);
	if (bert_in_blocks(t, a))
		return bert_block_attention(t, l, p, (enum oom_dtype)x.dt, caller);
	if (kind->attention == BERT_NYSTROM)
		return oom_nystrom_attention(t, a, p[0], p[1], p[2], l->mask);
	if (kind->attention == BERT_YOSO)
		return oom_yoso_attention(t, a, p[0], p[1], p[2]);
	return oom_attention_core(t, &at, p[0], p[1], p[2]);
}

/* X-MOD's lang_adapter on the feed-forward's output, whose norm it borrows; every language has
 * its bottleneck. */
static struct oom_val bert_adapter(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct bert *own = bert_of(a);
	const uint64_t d = own->xmod.width;
	struct oom_frame f = {.t = t};
	struct oom_val y;
	size_t norm, here;

	if (own->xmod.norm)
		x = oom_op_layer_norm(t, "adapter_layer_norm", x, 0, true, true);
	norm = t->cursor;
	if (!own->pre_norm)
		x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
	x = oom_name(&f, x);
	y = oom_activation(t, a->act, oom_op_linear(t, "dense1", x, D(d), OOM_BIAS));
	y = oom_op_dropout(t, oom_op_linear(t, "dense2", y, D(a->d_model), OOM_BIAS), a->dropout);
	y = oom_op_add_inplace(t, y, oom_take(&f, x));
	for (uint64_t i = 1; i < own->xmod.languages && i < 1000; i++) {
		oom_linear_unused(t, "dense1", a->d_model, d, OOM_BIAS);
		oom_linear_unused(t, "dense2", d, a->d_model, OOM_BIAS);
	}
	if (!own->pre_norm) {
		here = t->cursor;
		t->cursor = norm;               /* the same norm again */
		y = oom_op_layer_norm(t, "LayerNorm", y, 0, true, true);
		t->cursor = here;
	}
	return oom_leave(&f, y);
}

/* Attention over an encoder's output, which a model alone has not: made, and not called. */
static void bert_idle_cross(struct oom_tape *t, const struct oom_arch *a)
{
	static const char *const names[4] = {"query", "key", "value", "dense"};
	const char *scope = t->scope;

	t->selection.within = "crossattention";
	for (int i = 0; i < 4; i++)
		oom_linear_unused(t, names[i], a->d_model, a->d_model, OOM_BIAS);
	t->scope = "LayerNorm";
	for (int i = 0; i < 2; i++)
		oom_param(t, i ? "bias" : "weight", 0, a->d_model, OOM_P_NORM | OOM_P_UNUSED);
	t->selection.within = NULL;
	t->scope = scope;
}

static struct oom_val bert_block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct oom_decoder_layer *l = ctx;
	const struct oom_arch *a = l->a;
	const struct bert_kind *kind = bert_kind(a);
	const bool pre = bert_of(a)->pre_norm;
	const char *norm = pre ? NULL : "LayerNorm", *later = kind->later_norms ? kind->later_norms : "LayerNorm";
	struct oom_frame f = {.t = t};
	struct oom_val in = x, y;

	if (kind->keeps_weights)
		oom_name(&f, oom_written_weights_before(t, a, i, (enum oom_dtype)x.dt));
	if (pre)
		in = oom_name(&f, oom_op_layer_norm(t, kind->norm ? kind->norm : "LayerNorm", x, 0, true, true));
	y = bert_attention(t, l, in, &f);
	x = oom_name(&f, oom_output(t, a->dropout, norm, y, x));
	if (bert_of(a)->cross && bert_of(a)->causal)
		bert_idle_cross(t, a);
	if (pre) {
		oom_forget(&f, in);
		in = oom_name(&f, oom_op_layer_norm(t, later, x, 0, true, true));
	} else {
		in = x;
	}
	y = oom_op_linear(t, "dense", in, D(a->d_ff), OOM_BIAS);
	if (pre && kind->normed == BERT_UNTIL_DENSE)
		oom_forget(&f, in);
	y = oom_activation(t, a->act, y);
	if (pre && kind->normed == BERT_UNTIL_ACT)
		oom_forget(&f, in);
	y = oom_output(t, kind->no_ff_dropout ? 0 : a->dropout, kind->adapters ? NULL : norm, y,
		       oom_take(&f, x));
	if (kind->adapters)
		y = bert_adapter(t, a, y);
	return oom_leave(&f, y);
}

static struct oom_val bert_mask(struct oom_tape *t, const struct oom_arch *a, enum oom_dtype dt)
{
	const struct bert_kind *kind = bert_kind(a);
	const bool causal = bert_of(a)->causal;

	if (bert_in_blocks(t, a))               /* band_mask */
		return oom_band_mask(t, bert_of(a)->block, bert_mask_type(t));
	if (kind->attention == BERT_WINDOW)
		return oom_new(t, "is_index_masked", t->m_bs, D(1), OOM_U8);
	if (kind->attention == BERT_YOSO)       /* as it was given, or ones */
		return t->plan->padding_mask ? oom_none() :
					       oom_new(t, "attention mask", t->m_bs, D(1), OOM_F32);
	if (kind->float_mask)
		return oom_new(t, "extended attention mask", t->m_bs, D(1), dt);
	if (kind->written_out)
		return oom_make_written_mask(t, causal, dt, t->m_b, t->m_s, t->m_s);
	return oom_make_mask(t, causal, 0, dt, t->m_b, t->m_s, t->m_s);
}

static struct oom_val bert_classify(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	const struct bert_kind *kind = bert_kind(a);
	struct oom_frame outputs = {.t = t};

	if (kind->pooler_always)
		oom_name(&outputs, oom_idle_pooler(t, a, x));
	if (kind->cls == BERT_POOLER)
		return oom_leave(&outputs, oom_pooler_head(t, a, x));
	return oom_leave(&outputs, oom_cls_head(t, a,
						kind->cls == BERT_CLS_TANH ? OOM_ACT_TANH :
						kind->cls == BERT_CLS_GELU ? OOM_ACT_GELU :
									     a->act,
						x));
}

static struct oom_val bert_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
				struct oom_val word)
{
	const struct bert_kind *kind = bert_kind(a);
	const struct oom_mlm m = {.d = bert_of(a)->d_head,
				  .act = kind->gelu_heads ? OOM_ACT_GELU : a->act,
				  .no_transform = kind->no_transform,
				  .spare_bias = !kind->no_spare_bias,
				  .owner = kind->head, .norm = kind->head_norm};
	struct oom_frame outputs = {.t = t};

	if (kind->attention == BERT_WINDOW)
		oom_tape_warn(t, t->task == OOM_TASK_SEQ_CLS ?
				     "Longformer's classifier attends globally from its first "
				     "token: that part is not counted" :
				     "Longformer is counted without global attention, which a "
				     "batch asks for with global_attention_mask");
	if (t->task == OOM_TASK_SEQ_CLS)
		return bert_classify(t, a, x);
	if (t->task == OOM_TASK_EMBEDDING && kind->cls != BERT_CLS_GELU)        /* AutoModel has one, but ELECTRA's */
		oom_discard(t, oom_idle_pooler(t, a, x));       /* the texts' embeddings are kept alone */
	if (oom_tokens_asked(t))
		return oom_leave(&outputs, oom_tokens_head(t, &(struct oom_tokens){.name = "classifier",
								    .dropout = a->classifier_dropout}, x));
	if (kind->idle_pooler)
		oom_name(&outputs, oom_idle_pooler(t, a, x));
	return oom_leave(&outputs, oom_mlm_loss(t, a, &m, x, word));
}

/* Longformer's model pads to whole windows what it is given, BigBird's to whole blocks, and cuts
 * its output. */
struct bert_lengths {
	uint16_t s, bs, bss;
};

static struct bert_lengths bert_pad(struct oom_tape *t, const struct oom_arch *a)
{
	const struct bert_lengths given = {t->m_s, t->m_bs, t->m_bss};
	const uint64_t unit = bert_kind(a)->attention == BERT_WINDOW ? bert_of(a)->window :
			      bert_in_blocks(t, a)		      ? bert_of(a)->block :
									0;

	if (unit) {
		t->m_s = oom_len_round_up(t, OOM_MONO_ONE, unit);
		t->m_bs = oom_mono_mul(t, t->m_b, t->m_s);
		t->m_bss = oom_mono_mul(t, t->m_bs, t->m_s);
	}
	return given;
}

static struct oom_val bert_cut(struct oom_tape *t, struct bert_lengths given, struct oom_val x)
{
	const uint16_t padded = t->m_bs;

	t->m_s = given.s;
	t->m_bs = given.bs;
	t->m_bss = given.bss;
	return padded != given.bs && oom_cond_more(t, padded, 1, t->m_bs, 1) ?
		       oom_op_slice(t, x, t->m_bs, (struct oom_dim){x.width, x.text}) :
		       x;
}

static struct oom_val bert_model(struct oom_tape *t, const struct oom_arch *a, struct oom_val *word)
{
	const struct bert_kind *kind = bert_kind(a);
	const struct oom_dim h = D(a->d_model);
	struct oom_decoder_layer l = {.a = a};
	struct oom_frame f = {.t = t};
	struct oom_val types, x, mask;

	/* token_type_ids, a local of the model until it returns */
	types = bert_zero_types(&f, a);
	x = bert_embeddings(t, a, types, word);
	if (!kind->maps_in && a->d_embed != a->d_model)
		x = oom_op_linear(t, "embeddings_project", x, h, OOM_BIAS);
	x = oom_name(&f, x);                    /* embedding_output */
	if (kind->maps_in)
		x = oom_op_linear(t, "embedding_hidden_mapping_in", x, h, OOM_BIAS);
	/* Longformer's masks are a row of the whole one, which they keep */
	if (kind->attention == BERT_WINDOW) {
		mask = oom_new(t, "attention mask", t->m_bss, D(1), (enum oom_dtype)x.dt);
		oom_name_shared(&f, mask);
	}
	/* RemBERT's is made for the embeddings before they are widened */
	mask = bert_mask(t, a, t->amp && kind->maps_in ? OOM_F32 : (enum oom_dtype)x.dt);
	l.mask = oom_name_shared(&f, mask);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, bert_block, &l, x);
	if (kind->pre_norm || bert_of(a)->pre_norm)
		x = oom_op_layer_norm(t, kind->later_norms ? kind->later_norms : "LayerNorm", oom_name(&f, x), 0,
				      true, true);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

struct oom_val bert_step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct bert_lengths given = bert_pad(t, a);
	struct oom_val word, x = bert_model(t, a, &word);
	const size_t head = t->cursor;

	x = bert_head(t, a, bert_cut(t, given, x), word);
	if (bert_kind(a)->head_first) {
		oom_params_first(t, head, 1);
		if (a->tie && (t->task == OOM_TASK_MASKED_LM || t->task == OOM_TASK_CAUSAL_LM))
			oom_param_first(t, word, 2);    /* the decoder's weight */
	}
	return x;
}
