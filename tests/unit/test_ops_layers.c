/* Whole layers of decoders against transformers' own modules (measured/layers.csv; the same cases in Python:
 * tests/tools/measured/layers.py). */
#include "blocks/decoder.h"
#include "tape_case.h"

#define SIZES                                                                                         \
	"\"vocab_size\":96,\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"     \
	"\"intermediate_size\":128"

static struct oom_val layer(struct oom_tape *t, const char *json, uint64_t rotary, struct oom_val x)
{
	struct oom_decoder_layer l = {.a = tape_config(json), .mask = oom_none()};
	struct oom_frame f = {.t = t};

	if (t->plan->attn == OOM_ATTN_EAGER)
		l.mask = oom_input(t, "mask", t->m_bss, 1, tape_dtype(t));
	if (rotary)
		l.rope = (struct oom_rope){oom_input(t, "cos", t->m_s, rotary, tape_dtype(t)),
					   oom_input(t, "sin", t->m_s, rotary, tape_dtype(t))};
	return oom_leave(&f, l.a->family->decoder->block(t, &l, 0, oom_name(&f, x)));
}

CASE(gpt2_layer, 64)
{
	return layer(t, "{\"model_type\":\"gpt2\",\"vocab_size\":96,\"n_embd\":64,\"n_layer\":2,\"n_head\":4}", 0, x);
}

#define OPT "\"ffn_dim\":128,\"word_embed_proj_dim\":64," SIZES

CASE(opt_layer, 64) { return layer(t, "{\"model_type\":\"opt\"," OPT "}", 0, x); }
CASE(opt_layer_normed_after, 64)
{
	return layer(t, "{\"model_type\":\"opt\",\"do_layer_norm_before\":false," OPT "}", 0, x);
}

CASE(gpt_neox_layer, 64) { return layer(t, "{\"model_type\":\"gpt_neox\",\"rotary_pct\":0.25," SIZES "}", 4, x); }
CASE(gpt_neox_layer_in_turn, 64)
{
	return layer(t, "{\"model_type\":\"gpt_neox\",\"rotary_pct\":0.25,\"use_parallel_residual\":false," SIZES "}", 4,
		     x);
}

CASE(biogpt_layer, 64) { return layer(t, "{\"model_type\":\"biogpt\"," SIZES "}", 0, x); }

int main(void)
{
	return tape_cases_check("layers") != 0;
}
