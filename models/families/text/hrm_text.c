/* HRM text: two stacks of layers run again and again, a fast one several times before each run of
 * the slow one; only the last fast runs keep a graph.
 * Reference: transformers 5.12, models/hrm_text/modeling_hrm_text.py; Wang et al. 2025,
 * arXiv:2506.21734. */
#include "blocks/decoder.h"
#include "config/keys.h"

enum { MOST_BP = 12, MOST_RUNS = 15 };

struct hrm_text {
	uint64_t slow, fast;            /* runs of the slow stack; of the fast one before each */
	uint64_t n_bp, bp[MOST_BP];     /* fast runs with a graph, by slow cycle */
};
OOM_OWN(hrm_text, struct hrm_text);

static const struct oom_key_row hrm_text_keys[] = {
	MUST(vocab, "vocab_size"), MUST(d_model, "hidden_size"), MUST(d_ff, "intermediate_size"),
	OR(n_layers, "num_layers_per_stack", 0), MUST(n_heads, "num_attention_heads"),
	QUOTIENT(head_dim, "head_dim", d_model, n_heads), OOM_USUAL_KEYS,
	ACT(act, "hidden_act", "silu"), OOM_BIAS_KEYS(false), FLAG(mlp_bias, "mlp_bias", false),
	MUST_OWN(struct hrm_text, slow, "H_cycles"), MUST_OWN(struct hrm_text, fast, "L_cycles"),
	OOM_KEYS_END};

static void hrm_text_parse(struct oom_arch *a)
{
	struct hrm_text *own = hrm_text_own(a);
	struct oom_reader *r = &a->rd;
	const struct oom_key *bp = oom_read_key(r, "L_bp_cycles");
	const bool listed = bp && bp->type == OOM_KEY_LIST;

	/* a file of old says the layers of one stack here */
	if (!a->n_layers)
		a->n_layers = oom_read_count(r, "num_hidden_layers", 1);
	own->n_bp = listed ? bp->n_items : 1;
	if (!a->head_dim || own->n_bp > MOST_BP || own->slow > MOST_RUNS || own->fast > MOST_RUNS ||
	    own->slow * (own->fast + 1) > MOST_RUNS) {
		oom_read_fail(r,
			      "H_cycles (%llu) of L_cycles (%llu): at most %d runs of a stack are "
			      "modelled",
			      (unsigned long long)own->slow, (unsigned long long)own->fast,
			      MOST_RUNS);
		return;
	}
	own->bp[0] = 2;
	for (uint32_t i = 0; listed && i < bp->n_items; i++)
		own->bp[i] = (uint64_t)oom_read_item_real(r, "L_bp_cycles", i, 1);
}

static struct oom_val hrm_text_attention(struct oom_frame *layer, const struct oom_decoder_layer *l,
					 uint8_t kind, struct oom_val x)
{
	struct oom_attn at = oom_layer_attn(layer->t, l, false);

	(void)kind;
	at.gated = true;
	at.gate_bias = l->a->qkv_bias;
	return oom_attention(layer->t, &at, x);
}

/* One run of a stack, whose parameters begin at *start (0: they are met for the first time). */
static struct oom_val run(struct oom_tape *t, const struct oom_decoder_layer *l, struct oom_val x,
			  size_t *start, bool grad)
{
	const size_t at = t->cursor;
	const bool was = t->grad, expand = t->expand;

	t->grad = was && grad;
	/* Runs of one stack share its weights' copies of autocast: made in the first, kept for those
	 * with a graph.  A layer that stands for others would give up in one run what it took in another. */
	t->expand |= t->amp;
	if (*start)
		t->cursor = *start;
	else
		*start = at;
	x = oom_layers(t, (uint32_t)oom_depth(t, l->a->n_layers), NULL, oom_plain_layer, l, x);
	t->expand = expand;
	if (*start != at)
		t->cursor = at;
	x = oom_norm(t, l->a->norm, "final_norm", x, 0);
	t->grad = was;
	return x;
}

/* Fast runs of slow cycle h that keep a graph: the list is padded with ones in front. */
static uint64_t with_graph(const struct hrm_text *own, uint64_t h)
{
	const uint64_t n = own->n_bp, pad = own->slow > n ? own->slow - n : 0;

	return h < pad ? 1 : h - pad < n ? own->bp[h - pad] : 1;
}

static struct oom_val cycles(struct oom_tape *t, const struct oom_decoder_layer *l,
			     struct oom_val high, struct oom_val low)
{
	const struct hrm_text *own = hrm_text_of(l->a);
	struct oom_frame f = {.t = t};
	size_t slow = 0, fast = 0;

	low = oom_arg(&f, low);
	for (uint64_t h = 0; h < own->slow; h++) {
		for (uint64_t i = 0; i < own->fast; i++) {
			const bool grad = i + with_graph(own, h) >= own->fast, was = t->grad;

			t->grad = was && grad;
			low = oom_op_add(t, oom_take(&f, low), high);
			t->grad = was;
			low = oom_name(&f, run(t, l, low, &fast, grad));
			if (!grad)
				low.rg = false;
		}
		high = oom_op_add(t, oom_take(&f, high), low);
		high = oom_name(&f, run(t, l, high, &slow, true));
	}
	return oom_leave(&f, high);
}

static const struct oom_decoder hrm_text_decoder = {.rope = true, .mixer = hrm_text_attention};

/* HrmTextModel.forward */
static struct oom_val hrm_text_model(struct oom_tape *t, const struct oom_arch *a,
				     struct oom_val *embed)
{
	struct oom_val x, low, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);
	struct oom_decoder_layer l = {.a = a, .d = &hrm_text_decoder};
	struct oom_frame f = {.t = t};

	t->scope = "model";
	oom_param(t, "z_L_init", 0, a->d_model, OOM_P_FROZEN);
	t->scope = "embed_tokens";
	*embed = oom_param(t, "weight", a->vocab, a->d_model, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *embed, ids, a->vocab, D(a->d_model));
	x = oom_name(&f, oom_op_unary(t, OOM_SCALE, oom_input_grads(t, x)));
	ids = oom_name_shared(&f, oom_position_ids(t));
	oom_name(&f, ids);
	oom_decoder_shares(&f, a, &hrm_text_decoder, &l, x.dt);
	low = oom_new(t, "z_L", t->m_bs, D(a->d_model), x.dt);
	return oom_leave(&f, cycles(t, &l, x, low));
}

static struct oom_val hrm_text_step(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_val embed, x = hrm_text_model(t, a, &embed);

	return oom_causal_tail(t, a, x, embed);
}

const struct oom_family oom_family_hrm_text = {
	.name = "hrm_text",
	.summary = "two stacks of layers run in nested cycles",
	.source = "transformers 5.12 models/hrm_text/modeling_hrm_text.py",
	.types = OOM_TYPE("hrm_text"),
	.norm = OOM_NORM_RMS_PLAIN,
	.lora_targets = "q_proj+v_proj",
	.keys = hrm_text_keys,
	.parse = hrm_text_parse,
	.step = hrm_text_step,
};
