/* Mixers and attention that no kernel of PyTorch does in one piece against transformers' own modules
 * (measured/mixers.csv; the same cases in Python: tests/tools/measured/mixers.py). */
#include "blocks/decoder.h"
#include "blocks/mixers.h"
#include "blocks/sparse.h"
#include "tape_case.h"

enum { HEADS = 4, HEAD = 16 };

/* ---- selective scans ---- */

#define SELECTIVE(name, ...)                                                                          \
	CASE(name, 64)                                                                                \
	{                                                                                             \
		const struct oom_selective m = {.inner = 256, .d_state = 8, .rank = 4, .kernel = 4,    \
						.conv_bias = true, .act = OOM_ACT_SILU, __VA_ARGS__}; \
		return oom_selective_mixer(t, &m, x);                                                 \
	}

SELECTIVE(selective_loop, .heads = 1)
SELECTIVE(selective_scan, .heads = 1, .associative = true)
SELECTIVE(selective_loop_normed, .heads = 1, .normed = true, .norm = OOM_NORM_RMS_PLAIN)
SELECTIVE(selective_scan_normed, .heads = 1, .associative = true, .normed = true, .norm = OOM_NORM_RMS_PLAIN)
SELECTIVE(selective_loop_jamba, .heads = 1, .normed = true, .norm = OOM_NORM_RMS)

/* Zamba's: 12 KiB of one row, the evaluation of one sequence under autocast. */
CASE_WITHIN(selective_loop_of_heads, 64, 8)
{
	const struct oom_selective m = {.inner = 256, .d_state = 8, .rank = 4, .kernel = 4, .heads = 2, .by_head = true,
					.conv_bias = true, .act = OOM_ACT_SILU};

	return oom_selective_mixer(t, &m, x);
}

/* ---- RWKV's layer ---- */

CASE(rwkv_layer, 128)
{
	const struct oom_decoder_layer l = {
		.a = tape_config("{\"model_type\":\"rwkv\",\"vocab_size\":96,\"hidden_size\":128,\"num_hidden_layers\":2}")};

	struct oom_frame f = {.t = t};

	return oom_leave(&f, l.a->family->decoder->block(t, &l, 1, oom_name(&f, x)));
}

/* ---- attention to some of the keys ---- */

CASE(window_of_16, 64)
{
	const struct oom_window w = {.width = 16, .heads = HEADS, .d = HEAD, .dropout = 0.1,
				     .masked = oom_input(t, "is_index_masked", t->m_bs, 1, OOM_U8)};

	struct oom_frame f = {.t = t};

	return oom_leave(&f, oom_window_attention(t, &w, oom_name(&f, x)));
}

/* x gets its name in f. */
static void projected(struct oom_frame *f, struct oom_val x, struct oom_val p[3])
{
	static const char *const names[3] = {"query", "key", "value"};

	x = oom_name(f, x);
	for (int i = 0; i < 3; i++)
		p[i] = oom_op_heads(f->t, oom_op_linear(f->t, names[i], x, D(64), OOM_BIAS));
}

#define NYSTROM(marks)                                                                             \
	"{\"model_type\":\"nystromformer\",\"vocab_size\":96,\"hidden_size\":64,\"num_hidden_layers\":1," \
	"\"num_attention_heads\":4,\"intermediate_size\":128,\"segment_means_seq_len\":48,"        \
	"\"conv_kernel_size\":5,\"num_landmarks\":" marks "}"

static struct oom_val landmarks(struct oom_tape *t, const char *json, struct oom_val x)
{
	struct oom_val mask = oom_input(t, "mask", t->m_bs, 1, tape_dtype(t)), p[3];
	struct oom_frame f = {.t = t};

	projected(&f, x, p);
	return oom_leave(&f, oom_nystrom_attention(t, tape_config(json), p[0], p[1], p[2], mask));
}

CASE(landmarks_all, 64) { return landmarks(t, NYSTROM("48"), x); }
/* one number of 512 bytes of the inverse */
CASE_WITHIN(landmarks_of_16, 64, 3) { return landmarks(t, NYSTROM("16"), x); }

/* Masks of a few tokens, which einsum makes of others under autocast. */
CASE_WITHIN(blocks_of_4, 64, 9)
{
	const struct oom_blocks b = {.block = 4, .random = 2, .heads = HEADS, .d = HEAD, .dt = tape_dtype(t),
				     .mask_dt = t->amp ? (enum oom_dtype)t->amp_dt : OOM_F32};
	struct oom_frame f = {.t = t};
	struct oom_val p[3], weights, y;

	projected(&f, x, p);
	/* band_mask.to(hidden_states.dtype), and that of the keys */
	if (b.dt != OOM_F32) {
		oom_name(&f, oom_new(t, "band_mask", oom_len_padded(t, t->m_b, 4, -8), D(3 * 4), b.dt));
		oom_name(&f, oom_new(t, "to_mask", t->m_bs, D(1), b.dt));
	}
	y = oom_block_attention(t, &b, p[0], p[1], p[2], &weights);
	oom_name(&f, weights);
	return oom_leave(&f, y);
}

CASE(hashes_expected, 64)
{
	struct oom_arch *a = tape_arch();
	struct oom_frame f = {.t = t};
	struct oom_val p[3];

	a->n_heads = HEADS;
	a->d_model = 64;
	a->head_dim = HEAD;
	projected(&f, x, p);
	return oom_leave(&f, oom_yoso_attention(t, a, p[0], p[1], p[2]));
}

int main(void)
{
	return tape_cases_check("mixers") != 0;
}
