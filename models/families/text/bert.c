/* BERT, RoBERTa and the encoders built like them: learned positions, plain feed-forwards, norms
 * after or before. Reference: transformers 5.12, models/bert/modeling_bert.py,
 * models/roberta/modeling_roberta.py and those of the types below. */
#include <stdio.h>
#include <string.h>

#include "blocks/sparse.h"
#include "bert.h"

static const struct {
	const char *type;
	uint32_t flags;
} kinds[] = {
	{"bert", 0},
	{"roberta", BERT_IDS_POSITIONS | BERT_CLS_HEAD | BERT_GELU_HEADS},
	{"xlm-roberta", BERT_IDS_POSITIONS | BERT_CLS_HEAD | BERT_GELU_HEADS},
	{"camembert", BERT_IDS_POSITIONS | BERT_CLS_HEAD | BERT_GELU_HEADS},
	{"data2vec-text", BERT_IDS_POSITIONS | BERT_CLS_HEAD | BERT_GELU_HEADS},
	{"electra", BERT_ELECTRA | BERT_GELU_HEADS},
	{"roberta-prelayernorm", BERT_IDS_POSITIONS | BERT_CLS_HEAD | BERT_GELU_HEADS | BERT_PRE_NORM},
	{"xlm-roberta-xl", BERT_IDS_POSITIONS | BERT_CLS_HEAD | BERT_GELU_HEADS | BERT_PRE_NORM | BERT_NO_EMBED_NORM |
			   BERT_NO_FF_DROPOUT},
	{"ernie", 0},
	{"roc_bert", BERT_ADD_INPLACE},
	{"bert-generation", BERT_NO_TYPES | BERT_NO_TRANSFORM},
	{"megatron-bert", BERT_ZERO_TYPES | BERT_ADD_INPLACE | BERT_NO_EMBED_NORM | BERT_PRE_NORM | BERT_WRITTEN_OUT |
			  BERT_KEEPS_WEIGHTS},
	{"rembert", BERT_ZERO_TYPES | BERT_ADD_INPLACE | BERT_WRITTEN_OUT | BERT_KEEPS_WEIGHTS | BERT_UNTIED_BIAS},
	{"layoutlm", BERT_ZERO_TYPES | BERT_WRITTEN_OUT | BERT_FLOAT_MASK | BERT_SOFTMAX_FP32 | BERT_IDLE_POOLER},
	{"markuplm", BERT_IDS_POSITIONS | BERT_ZERO_TYPES | BERT_WRITTEN_OUT | BERT_FLOAT_MASK | BERT_SOFTMAX_FP32},
	{"luke", BERT_IDS_POSITIONS | BERT_ZERO_TYPES | BERT_WRITTEN_OUT | BERT_GELU_HEADS | BERT_IDLE_POOLER | BERT_UNTIED_BIAS |
		 BERT_NO_BUFFER},
	{"tapas", BERT_ZERO_TYPES | BERT_WRITTEN_OUT | BERT_NO_BUFFER},
	{"longformer", BERT_IDS_POSITIONS | BERT_ZERO_TYPES | BERT_CLS_HEAD | BERT_GELU_HEADS | BERT_WRITTEN_OUT | BERT_WINDOW |
		       BERT_POSITIONS_FIRST | BERT_NO_BUFFER},
	{"big_bird", BERT_WRITTEN_OUT | BERT_FEW_KEYS | BERT_CLS_HEAD | BERT_ACT_HEAD | BERT_IDLE_POOLER},
	{"mra", BERT_ZERO_TYPES | BERT_WRITTEN_OUT | BERT_FEW_KEYS | BERT_CLS_HEAD | BERT_ACT_HEAD | BERT_MORE_POSITIONS},
	{"yoso", BERT_ZERO_TYPES | BERT_WRITTEN_OUT | BERT_CLS_HEAD | BERT_ACT_HEAD | BERT_MORE_POSITIONS},
	{"nystromformer", BERT_ZERO_TYPES | BERT_WRITTEN_OUT | BERT_CLS_HEAD | BERT_ACT_HEAD | BERT_MORE_POSITIONS},
	{"xmod", BERT_IDS_POSITIONS | BERT_CLS_HEAD | BERT_GELU_HEADS | BERT_ADAPTERS},
	{"ibert", BERT_IDS_POSITIONS | BERT_ZERO_TYPES | BERT_CLS_HEAD | BERT_GELU_HEADS | BERT_WRITTEN_OUT},
};

static uint64_t flags_of(const char *type)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].type, type))
			return kinds[i].flags;
	return 0;
}

static void warn(struct oom_arch *a, const char *how)
{
	a->approximate = true;
	snprintf(a->warning, sizeof(a->warning),
		 "%s: parameters are exact; activations are approximated as %s.", a->model_type,
		 how);
}

/* Sparse attention: how many keys a query meets.  0: all of them. */
static void read_sparse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;
	const uint64_t block = oom_read_count_or(r, "block_size", 64),
		       random = oom_read_count_or(r, "num_random_blocks", 3);

	if (!strcmp(a->model_type, "big_bird")) {
		const char *type = oom_read_string(r, "attention_type", "block_sparse");

		if (!block || block > 1 << 16 || random > 1 << 10)
			oom_read_fail(r, "block_size or num_random_blocks out of range");
		/* up to (5 + 2 random) blocks transformers switches to full attention itself */
		a->extra[BERT_FULL_TO] = block * (5 + 2 * random);
		a->extra[BERT_RANDOM] = random;
		a->extra[BERT_BLOCK] = type && !strcmp(type, "block_sparse") ? block : 0;
	} else if (!strcmp(a->model_type, "mra")) {
		warn(a, "full attention");
	}
}

/* Where a type's keys or sizes are its own. */
static void adjust(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	if (!strcmp(a->model_type, "markuplm") &&
	    (oom_read_count_or(r, "max_depth", 50) > 4096 ||
	     oom_read_count_or(r, "xpath_unit_hidden_size", 32) > 1 << 20))
		oom_read_fail(r, "max_depth is more than 4096, or xpath_unit_hidden_size more than "
				 "2^20");

	a->extra[BERT_D_HEAD] = a->d_embed;
	/* tie_word_embeddings does nothing: the widths differ */
	if (!strcmp(a->model_type, "rembert")) {
		a->d_embed = oom_read_count(r, "input_embedding_size", 1);
		a->extra[BERT_D_HEAD] = oom_read_count_or(r, "output_embedding_size", 1664);
		a->classifier_dropout = oom_read_real(r, "classifier_dropout_prob", 0.1);
		a->tie = false;
	}
	if (a->extra[BERT_FLAGS] & BERT_MORE_POSITIONS)
		a->max_positions += 2;
	if (a->extra[BERT_FLAGS] & BERT_FEW_KEYS)
		read_sparse(a);
	if (a->extra[BERT_FLAGS] & BERT_WINDOW)
		a->extra[BERT_KEYS] = oom_read_window(r, "attention_window", 512);
	if (!strcmp(a->model_type, "xmod")) {
		a->extra[BERT_PRE] = oom_read_bool(r, "pre_norm", false);
		if (a->extra[BERT_PRE])
			a->extra[BERT_FLAGS] |= BERT_PRE_NORM;
		warn(a, "RoBERTa's with one language's adapter");
	}
	if (!strcmp(a->model_type, "luke"))     /* only the entities' decoder is tied */
		a->tie = false;
	if (!strcmp(a->model_type, "yoso") && !oom_read_bool(r, "use_expectation", true))
		warn(a, "the expectation of its hashes");
	if (!strcmp(a->model_type, "ibert"))
		warn(a, "RoBERTa's, the quantisers' statistics left out");
}

static void parse(struct oom_arch *a)
{
	struct oom_reader *r = &a->rd;

	a->extra[BERT_FLAGS] = flags_of(a->model_type);
	a->extra[BERT_CAUSAL] = oom_read_bool(r, "is_decoder", false);
	a->default_task = !strcmp(a->model_type, "bert-generation") ? OOM_TASK_CAUSAL_LM :
			  !strcmp(a->model_type, "markuplm")	    ? OOM_TASK_SEQ_CLS :
								      OOM_TASK_MASKED_LM;
	oom_bert_sizes(a);
	a->d_embed = a->extra[BERT_FLAGS] & BERT_ELECTRA ? oom_read_count(r, "embedding_size", 1) :
							   a->d_model;
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", a->dropout);
	a->tie = oom_read_bool(r, "tie_word_embeddings", true);
	adjust(a);
	if (a->d_model % a->n_heads)
		oom_read_fail(r,
			      "hidden_size (%llu) is not a multiple of num_attention_heads (%llu)",
			      (unsigned long long)a->d_model, (unsigned long long)a->n_heads);
}

struct layer {
	const struct oom_arch *a;
	struct oom_val mask;
};

/* LUKE's queries between words and entities. */
static void entity_queries(struct oom_tape *t, const struct oom_arch *a)
{
	static const char *const names[3] = {"w2e_query", "e2w_query", "e2e_query"};

	for (int i = 0; i < 3; i++)
		oom_linear_unused(t, names[i], a->d_model, a->d_model, OOM_BIAS);
}

/* The keys' length as the products see it. */
static uint16_t keys(struct oom_tape *t, const struct oom_arch *a)
{
	if (!(a->extra[BERT_FLAGS] & BERT_FEW_KEYS) || !a->extra[BERT_KEYS] ||
	    a->extra[BERT_KEYS] > 1 << 24 ||
	    (a->extra[BERT_FULL_TO] && !oom_cond_above(t, t->m_s, a->extra[BERT_FULL_TO])))
		return t->m_s;
	return oom_len_min(t, OOM_MONO_ONE, a->extra[BERT_KEYS]);
}

/* BigBird attends in blocks beyond the length up to which it falls back on full attention. */
static bool in_blocks(struct oom_tape *t, const struct oom_arch *a)
{
	return a->extra[BERT_BLOCK] && oom_cond_above(t, t->m_s, a->extra[BERT_FULL_TO]);
}

/* BigBird's masks: ones of its own are fp32, those of a batch are whole numbers; einsum makes the
 * first what autocast wants. */
static enum oom_dtype mask_type(const struct oom_tape *t)
{
	return t->plan->padding_mask ? OOM_I64 : t->amp ? (enum oom_dtype)t->amp_dt : OOM_F32;
}

static struct oom_val attend(struct oom_tape *t, const struct layer *l, struct oom_val in,
			     struct oom_val *weights)
{
	const struct oom_arch *a = l->a;
	const uint64_t flags = a->extra[BERT_FLAGS];
	const struct oom_dim h = D(a->d_model);
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_reader r = a->rd;
	const unsigned bias = oom_read_bool(&r, "use_bias", true) ? OOM_BIAS : 0;
	struct oom_val q, k, v;

	if (flags & BERT_WINDOW)
		return oom_window_attention(t,
					    &(struct oom_window){.width = a->extra[BERT_KEYS],
								 .heads = a->n_heads,
								 .d = a->head_dim,
								 .masked = l->mask,
								 .dropout = a->attn_dropout},
					    in);
	at.mask = l->mask;
	at.sk = keys(t, a);
	at.causal = a->extra[BERT_CAUSAL];
	at.softmax_as_is = at.no_cast_back = !(flags & BERT_SOFTMAX_FP32);
	at.written_out = flags & BERT_WRITTEN_OUT;
	at.scores_local = at.written_out && !(flags & BERT_SOFTMAX_FP32);
	at.weights = flags & BERT_WRITTEN_OUT && !(flags & (BERT_KEEPS_WEIGHTS | BERT_SOFTMAX_FP32 |
							    BERT_FEW_KEYS)) ?
			     NULL :
			     weights;
	q = oom_op_heads(t, oom_op_linear(t, "query", oom_keep(in), h, bias));
	k = oom_op_heads(t, oom_op_linear(t, "key", oom_keep(in), h, bias));
	v = oom_op_heads(t, oom_op_linear(t, "value", oom_keep(in), h, bias));
	if (!strcmp(a->model_type, "luke") &&
	    oom_read_bool(&r, "use_entity_aware_attention", true))
		entity_queries(t, a);
	if (in_blocks(t, a)) {
		const struct oom_blocks b = {.block = a->extra[BERT_BLOCK],
					     .random = a->extra[BERT_RANDOM],
					     .heads = a->n_heads,
					     .d = a->head_dim,
					     .mask_dt = mask_type(t),
					     .dt = (enum oom_dtype)in.dt};
		struct oom_val band = oom_none(), y;

		/* band_mask.to(hidden_states.dtype), in every layer */
		if (in.dt != b.mask_dt)
			band = oom_new_like(t, "_to_copy", l->mask, (enum oom_dtype)in.dt);
		y = oom_block_attention(t, &b, q, k, v, weights);
		oom_drop(t, band);
		return y;
	}
	if (!strcmp(a->model_type, "nystromformer"))
		return oom_nystrom_attention(t, a, q, k, v, l->mask);
	if (!strcmp(a->model_type, "yoso"))
		return oom_yoso_attention(t, a, q, k, v);
	return oom_attention_core(t, &at, q, k, v);
}

/* X-MOD's lang_adapter on the feed-forward's output, whose norm it borrows; every language has
 * its bottleneck. */
static struct oom_val adapt(struct oom_tape *t, const struct oom_arch *a, struct oom_val x)
{
	struct oom_reader r = a->rd;
	const struct oom_key *k = oom_read_key(&r, "languages");
	const uint32_t n = k && k->type == OOM_KEY_LIST ? k->n_items : 1;
	const uint64_t factor = oom_read_count_or(&r, "adapter_reduction_factor", 2),
		       d = a->d_model / (factor ? factor : 1);
	const size_t at = t->cursor;
	struct oom_val h, y;

	if (oom_read_bool(&r, "adapter_layer_norm", false))
		x = oom_op_layer_norm(t, "adapter_layer_norm", x, 0, true, true);
	h = a->extra[BERT_PRE] ? oom_share(t, x) :
				 oom_op_layer_norm(t, "LayerNorm", oom_keep(x), 0, true, true);
	oom_drop(t, x);
	y = oom_activation(t, a->act, oom_op_linear(t, "dense1", oom_keep(h), D(d), OOM_BIAS));
	y = oom_op_dropout(t, oom_op_linear(t, "dense2", y, D(a->d_model), OOM_BIAS), a->dropout);
	y = oom_op_add_inplace(t, y, h);
	for (uint32_t i = 1; i < n && i < 1000; i++) {
		oom_linear_unused(t, "dense1", a->d_model, d, OOM_BIAS);
		oom_linear_unused(t, "dense2", d, a->d_model, OOM_BIAS);
	}
	if (!a->extra[BERT_PRE]) {
		const size_t here = t->cursor;

		t->cursor = at;                 /* the same norm again */
		if (oom_read_bool(&r, "adapter_layer_norm", false))
			t->cursor += 2;
		y = oom_op_layer_norm(t, "LayerNorm", y, 0, true, true);
		t->cursor = here;
	}
	return y;
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_arch *a = l->a;
	const uint64_t flags = a->extra[BERT_FLAGS];
	const bool pre = flags & BERT_PRE_NORM;
	const char *norm = pre ? NULL : "LayerNorm";
	struct oom_val y, in, weights = oom_none(), before = oom_none();

	/* the caller keeps a layer's (hidden, weights) until the next layer has returned its own */
	if (i && flags & BERT_KEEPS_WEIGHTS && !t->recompute &&
	    (!t->grad || t->packing || (t->amp && a->attn_dropout > 0)))
		before = oom_new(t, "attention weights of the layer before", t->m_bss,
				 D(a->n_heads), t->amp ? OOM_F32 : (enum oom_dtype)x.dt);
	in = pre ? oom_op_layer_norm(t, "LayerNorm", oom_keep(x), 0, true, true) : oom_share(t, x);
	y = attend(t, l, in, &weights);
	x = oom_output(t, a->dropout, norm, y, x);
	oom_drop(t, in);
	in = pre ? oom_op_layer_norm(t, "LayerNorm", oom_keep(x), 0, true, true) : oom_share(t, x);
	y = oom_op_linear(t, "dense", oom_keep(in), D(a->d_ff), OOM_BIAS);
	/* RoBERTa-PreLayerNorm: the norm's name is the projection's */
	if (!(flags & (BERT_NO_EMBED_NORM))) {
		oom_drop(t, in);
		in = oom_none();
	}
	y = oom_activation(t, a->act, y);
	/* XLM-RoBERTa-XL: intermediate_output; Megatron's ln_output lives on */
	if (!(flags & BERT_WRITTEN_OUT)) {
		oom_drop(t, in);
		in = oom_none();
	}
	y = oom_output(t, flags & BERT_NO_FF_DROPOUT ? 0 : a->dropout,
		       flags & BERT_ADAPTERS ? NULL : norm, y, x);
	if (flags & BERT_ADAPTERS)
		y = adapt(t, a, y);
	oom_drop(t, in);
	oom_drop(t, weights);                   /* "attention_output, _ = self.attention(...)" */
	oom_drop(t, before);
	return y;
}


static struct oom_val make_mask(struct oom_tape *t, const struct oom_arch *a, enum oom_dtype dt)
{
	const uint64_t flags = a->extra[BERT_FLAGS];

	if (in_blocks(t, a))                    /* band_mask */
		return oom_band_mask(t, a->extra[BERT_BLOCK], mask_type(t));
	if (flags & BERT_WINDOW)                /* is_index_masked */
		return oom_new(t, "is_index_masked", t->m_bs, D(1), OOM_U8);
	if (flags & BERT_FLOAT_MASK)
		return oom_new(t, "extended attention mask", t->m_bs, D(1), dt);
	if (flags & BERT_WRITTEN_OUT)
		return oom_make_written_mask(t, a->extra[BERT_CAUSAL], dt, t->m_b, t->m_s, t->m_s);
	return oom_make_mask(t, a->extra[BERT_CAUSAL], 0, dt, t->m_b, t->m_s, t->m_s);
}

static struct oom_val head(struct oom_tape *t, const struct oom_arch *a, struct oom_val x,
			   struct oom_val word)
{
	const uint64_t flags = a->extra[BERT_FLAGS];
	const struct oom_mlm m = {
		.d = a->extra[BERT_D_HEAD], .act = flags & BERT_GELU_HEADS ? OOM_ACT_GELU : a->act,
		.no_transform = flags & BERT_NO_TRANSFORM,
		.spare_bias = !(flags & (BERT_ELECTRA | BERT_UNTIED_BIAS)),
	};

	if (flags & BERT_WINDOW)
		t->warning = t->task == OOM_TASK_SEQ_CLS ?
				     "Longformer's classifier attends globally from its first "
				     "token: that part is not counted" :
				     "Longformer is counted without global attention, which a "
				     "batch asks for with global_attention_mask";
	if (t->task == OOM_TASK_SEQ_CLS) {
		if (flags & BERT_FEW_KEYS && flags & BERT_IDLE_POOLER)
			oom_idle_pooler(t, a, x);
		if (flags & (BERT_ELECTRA | BERT_CLS_HEAD))
			return oom_cls_head(t, a,
					    flags & BERT_ELECTRA  ? OOM_ACT_GELU :
					    flags & BERT_ACT_HEAD ? a->act :
								    OOM_ACT_TANH,
					    x);
		return oom_pooler_head(t, a, x);
	}
	if (flags & BERT_IDLE_POOLER)
		oom_idle_pooler(t, a, x);
	return oom_mlm_loss(t, a, &m, x, word);
}

/* Longformer's model pads to whole windows what it is given, BigBird's to whole blocks, and cuts
 * its output. */
struct lengths {
	uint16_t s, bs, bss;
};

static struct lengths pad(struct oom_tape *t, const struct oom_arch *a)
{
	const struct lengths given = {t->m_s, t->m_bs, t->m_bss};

	const uint64_t unit = a->extra[BERT_FLAGS] & BERT_WINDOW ? a->extra[BERT_KEYS] :
			      in_blocks(t, a)			 ? a->extra[BERT_BLOCK] :
								   0;

	if (unit) {
		t->m_s = oom_len_round_up(t, OOM_MONO_ONE, unit);
		t->m_bs = oom_mono_mul(t, t->m_b, t->m_s);
		t->m_bss = oom_mono_mul(t, t->m_bs, t->m_s);
	}
	return given;
}

static struct oom_val cut(struct oom_tape *t, struct lengths given, struct oom_val x)
{
	const uint16_t padded = t->m_bs;

	t->m_s = given.s;
	t->m_bs = given.bs;
	t->m_bss = given.bss;
	return padded != given.bs && oom_cond_more(t, padded, 1, t->m_bs, 1) ?
		       oom_op_slice(t, x, t->m_bs, (struct oom_dim){x.width, x.text}) :
		       x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	const struct lengths given = pad(t, a);
	struct oom_val word, first, x = oom_bert_embeddings(t, a, &word, &first), hidden;
	struct layer l = {.a = a};
	/* Longformer's masks are a row of the whole one, which they keep */
	struct oom_val whole = a->extra[BERT_FLAGS] & BERT_WINDOW ?
				       oom_new(t, "attention mask", t->m_bss, D(1),
					       (enum oom_dtype)x.dt) :
				       oom_none();

	/* RemBERT's is made for the embeddings before they are widened */
	l.mask = make_mask(t, a, t->amp && !strcmp(a->model_type, "rembert") ? OOM_F32 :
									       (enum oom_dtype)x.dt);
	x = oom_layers(t, (uint32_t)oom_depth(t, a->n_layers), NULL, block, &l, x);
	oom_drop_shared(t, l.mask);
	oom_drop_shared(t, whole);
	if (a->extra[BERT_FLAGS] & BERT_PRE_NORM) {
		hidden = oom_share(t, x);       /* encoder_outputs, a local of the model */
		x = oom_op_layer_norm(t, "LayerNorm", x, 0, true, true);
		oom_drop(t, hidden);
	}
	oom_drop(t, first);                     /* embedding_output, a local of the model */
	x = cut(t, given, x);
	return head(t, a, x, word);
}

static const struct oom_family_type types[] = {
	{"bert", NULL}, {"roberta", NULL}, {"xlm-roberta", NULL}, {"camembert", NULL},
	{"data2vec-text", NULL}, {"electra", NULL}, {"roberta-prelayernorm", NULL},
	{"xlm-roberta-xl", NULL}, {"ernie", NULL}, {"roc_bert", NULL}, {"bert-generation", NULL},
	{"megatron-bert", NULL}, {"rembert", NULL}, {"layoutlm", NULL}, {"markuplm", NULL},
	{"luke", NULL}, {"tapas", NULL}, {"ibert", NULL}, {"longformer", NULL}, {"big_bird", NULL},
	{"mra", NULL}, {"yoso", NULL}, {"nystromformer", NULL}, {"xmod", NULL}, {NULL, NULL},
};

const struct oom_family oom_family_bert = {
	.name = "bert",
	.summary = "encoder with learned positions, plain feed-forward, dropout; norms after or "
		   "before",
	.source = "transformers 5.12 models/bert/modeling_bert.py",
	.types = types,
	.lora_targets = "query+value",
	.parse = parse,
	.step = step,
};
