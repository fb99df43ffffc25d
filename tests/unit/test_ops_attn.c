/* Attention kernels against PyTorch (measured/attn.csv; the same cases in Python:
 * tests/tools/measured/attn.py). */
#include "tape_case.h"

/* The kernel and its result laid out; queries, keys and values have names until the module returns
 * (oom_attention_core). */
static struct oom_val kernel(struct oom_tape *t, struct oom_val q, struct oom_val k,
			     struct oom_val v, struct oom_val mask, const struct oom_sdpa *a)
{
	const struct oom_val arg[3] = {q, k, v};
	struct oom_val y;

	if (t->plan->attn == OOM_ATTN_FLASH)
		y = oom_op_flash(t, oom_keep(q), oom_keep(k), oom_keep(v), a);
	else
		y = oom_op_sdpa(t, oom_keep(q), oom_keep(k), oom_keep(v),
				oom_is_none(mask) ? mask : oom_keep(mask), a);
	y = oom_op_merge_heads(t, y);
	for (int i = 0; i < 3; i++)
		oom_drop(t, arg[i]);
	return y;
}

/* Queries from x, keys and values of their own, laid out as heads; *mask may be absent. */
static struct oom_val attend(struct oom_tape *t, struct oom_val x, const struct oom_sdpa *a,
			     struct oom_val mask)
{
	struct oom_val q = oom_op_heads(t, x);
	struct oom_val k = oom_op_heads(t, tape_in(t, a->kv_heads * a->d));
	struct oom_val v = oom_op_heads(t, tape_in(t, a->kv_heads * a->dv));

	return kernel(t, q, k, v, mask, a);
}

static struct oom_sdpa of(const struct oom_tape *t, uint64_t heads, uint64_t kv, uint64_t d,
			  uint64_t dv)
{
	return (struct oom_sdpa){.heads = heads,
				 .kv_heads = kv,
				 .d = d,
				 .dv = dv,
				 .mq = t->m_bs,
				 .mk = t->m_bs,
				 .sk = t->m_s,
				 .causal = true};
}

#define ATTEND(name, width, heads, kv, d, dv)                                                \
	CASE(name, width)                                                                    \
	{                                                                                    \
		const struct oom_sdpa a = of(t, heads, kv, d, dv);                           \
                                                                                             \
		return attend(t, x, &a, oom_none());                                         \
	}
#define ATTEND_MASK(name, width, d, dt)                                                      \
	CASE(name, width)                                                                    \
	{                                                                                    \
		const struct oom_sdpa a = of(t, 4, 4, d, d);                                 \
                                                                                             \
		return attend(t, x, &a, oom_input(t, "mask", t->m_bss, 1, dt));              \
	}

ATTEND(sdpa, 64, 4, 4, 16, 16)
ATTEND(sdpa_broadcast, 64, 4, 1, 16, 16)
ATTEND(sdpa_odd, 48, 4, 4, 12, 12)
ATTEND(sdpa_wide, 640, 4, 4, 160, 160)
ATTEND(sdpa_narrow_values, 64, 4, 4, 16, 8)
ATTEND(sdpa_wide_values, 64, 4, 4, 16, 32)
ATTEND_MASK(sdpa_bool_mask, 64, 16, OOM_U8)
ATTEND_MASK(sdpa_odd_mask, 48, 12, OOM_U8)
ATTEND_MASK(sdpa_float_mask, 64, 16, tape_dtype(t))
ATTEND_MASK(sdpa_wide_mask, 640, 160, OOM_U8)
ATTEND_MASK(sdpa_96_mask, 384, 96, OOM_U8)
ATTEND(flash_package, 64, 4, 4, 16, 16)
ATTEND(flash_grouped, 64, 4, 2, 16, 16)
ATTEND(flash_odd, 48, 4, 4, 12, 12)
ATTEND(flash_narrow_values, 64, 4, 4, 16, 8)
ATTEND(flash_wide, 640, 4, 4, 160, 160)

CASE(sdpa_grouped, 64)
{
	struct oom_sdpa a = of(t, 4, 2, 16, 16);

	a.gqa = true;
	return attend(t, x, &a, oom_none());
}
/* heads of more than 256 elements: the math kernel, for grouped heads in 16 bit too */
CASE(sdpa_grouped_wide, 1056)
{
	struct oom_sdpa a = of(t, 4, 2, 264, 264);

	a.gqa = true;
	return attend(t, x, &a, oom_none());
}
CASE(sdpa_very_odd, 24)
{
	struct oom_sdpa a = of(t, 4, 4, 6, 6);

	a.causal = false;
	return attend(t, x, &a, oom_none());
}
CASE(sdpa_one_tensor, 64)
{
	const struct oom_sdpa a = of(t, 4, 4, 16, 16);

	x = oom_op_heads(t, x);
	return kernel(t, oom_share(t, x), oom_share(t, x), x, oom_none(), &a);
}
CASE(sdpa_learned_bias, 64)
{
	const struct oom_sdpa a = of(t, 4, 4, 16, 16);
	struct oom_val bias = tape_input(t, t->m_bss, 4, tape_dtype(t));
	struct oom_val y = attend(t, x, &a, bias);

	oom_drop(t, bias);
	return y;
}
CASE(sdpa_dropout, 64)
{
	struct oom_sdpa a = of(t, 4, 4, 16, 16);

	a.dropout = t->train ? 0.1 : 0;
	return attend(t, x, &a, oom_none());
}
CASE(sdpa_of_contiguous, 64)
{
	const struct oom_sdpa a = of(t, 4, 4, 16, 16);
	struct oom_val q[3] = {x};

	for (int i = 0; i < 3; i++) {
		q[i] = oom_op_heads(t, i ? tape_in(t, 64) : x);
		q[i] = oom_op_unary(t, OOM_SILU, oom_op_copy(t, "clone", q[i]));
	}
	return kernel(t, q[0], q[1], q[2], oom_none(), &a);
}
CASE(sdpa_not_merged, 64)
{
	const struct oom_sdpa a = of(t, 4, 4, 16, 16);
	struct oom_val q = oom_op_heads(t, x), k = oom_op_heads(t, tape_in(t, 64));

	return oom_op_sdpa(t, q, k, oom_op_heads(t, tape_in(t, 64)), oom_none(), &a);
}
CASE(sdpa_cross, 64)
{
	struct oom_sdpa a = of(t, 4, 4, 16, 16);
	struct oom_val k, v;

	/* keys of another length: twice as many tokens, as wider rows of each batch's */
	a.causal = false;
	k = oom_op_heads(t, tape_in(t, 128));
	v = oom_op_heads(t, tape_in(t, 128));
	return kernel(t, oom_op_heads(t, x), k, v, oom_none(), &a);
}

int main(void)
{
	return tape_cases_check("attn") != 0;
}
