/* Operations of recurrences and chunked scans against PyTorch (measured/scan.csv; the same cases in
 * Python: tests/tools/measured/scan.py). */
#include "blocks/mixers.h"
#include "tape_case.h"

CASE(pad, 64) { return oom_op_pad(t, x, x.mono, D(72)); }
CASE(pad_nothing, 64) { return oom_op_pad(t, x, x.mono, D(64)); }
CASE(set_part, 64) { return oom_op_set(t, oom_op_unary(t, OOM_SILU, x), tape_in(t, 16)); }
CASE(set_part_of_zeros, 64)
{
	struct oom_val y = oom_new(t, "zeros", x.mono, D(96), tape_dtype(t));

	return oom_op_set(t, y, oom_op_unary(t, OOM_SILU, x));
}
CASE(set_constant, 64)
{
	struct oom_val part = oom_input(t, "part", t->m_bs, 16, tape_dtype(t));

	return oom_op_set(t, oom_op_unary(t, OOM_SILU, x), part);
}
CASE(set_twice, 64)
{
	x = oom_op_set(t, oom_op_unary(t, OOM_SILU, x), tape_in(t, 16));
	return oom_op_set(t, x, tape_in(t, 16));
}
CASE(cat3, 64)
{
	struct oom_val b = tape_in(t, 32), c = tape_in(t, 16);

	return oom_op_cat3(t, x, b, c, D(112));
}
CASE(tril, 64) { return oom_op_tril(t, x); }
CASE(sum_wide, 64) { return oom_op_sum_wide(t, x, x.mono, D(1)); }
CASE(sum_of_16_bit, 64)
{
	return oom_op_sum_wide(t, oom_op_linear(t, "proj", x, D(96), 0), x.mono, D(1));
}
CASE(mul_into, 64) { return oom_op_mul_into(t, x, tape_in(t, 8), x.mono, D(64 * 8)); }
CASE(mul_into_weight, 64)
{
	return oom_op_mul_into(t, x, oom_param(t, "weight", 64, 8, 0), x.mono, D(64 * 8));
}

/* ---- a loop whose turns grow with the sequence: 16 tokens each ---- */

CASE_OF_NOTHING(loop)
{
	const enum oom_dtype dt = tape_dtype(t);
	const struct oom_loop l = oom_loop_over(t, 16);
	struct oom_val state = tape_input(t, t->m_b, 512, dt);

	for (int i = 0; i < l.turns; i++) {
		state = oom_loop_carry(t, &l, i, state, D(512), dt);
		state = oom_op_unary(t, OOM_TANH, state);
	}
	return state;
}
CASE_OF_NOTHING(loop_of_two)
{
	const enum oom_dtype dt = tape_dtype(t);
	const struct oom_loop l = oom_loop_over(t, 16);
	struct oom_val state = tape_input(t, t->m_b, 512, dt), before;

	/* silu keeps its input, the product both its factors */
	for (int i = 0; i < l.turns; i++) {
		state = oom_loop_carry(t, &l, i, state, D(3 * 512), dt);
		before = state;
		state = oom_op_unary(t, OOM_SILU, oom_keep(state));
		state = oom_op_mul(t, state, tape_input(t, t->m_b, 512, dt));
		oom_drop(t, before);            /* the name is taken over only now */
	}
	return state;
}

int main(void)
{
	return tape_cases_check("scan") != 0;
}
