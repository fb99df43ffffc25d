/* Linear layers whose weight is held in few bits, whatever the format (quantised_formats.c): what they take, and how they
 * run. */
#include "config/arch.h"
#include "quantised_formats.h"
#include "tape/round.h"

static const struct oom_quantised_format *format_of(const struct oom_tape *t)
{
	return oom_quantised_format(oom_plan_base(t->plan));
}

uint32_t oom_quantised_group(enum oom_base base)
{
	const struct oom_quantised_format *f = oom_quantised_format(base);

	return f ? f->group : 0;
}

bool oom_quantised_in_buffers(enum oom_base base)
{
	const struct oom_quantised_format *f = oom_quantised_format(base);

	return f && f->buffers;
}

bool oom_quantised_whole(const struct oom_plan *plan)
{
	return plan->packed_weights == OOM_PACKED_BUFFERS && oom_quantised_in_buffers(oom_plan_base(plan));
}

/* A group ends with its row (AutoGPTQ nn_modules/qlinear: scales of ceil(infeatures / group_size) x outfeatures). */
bool oom_quantised_on_card(const struct oom_plan *plan)
{
	const struct oom_quantised_format *f = oom_quantised_format(oom_plan_base(plan));

	return f && f->made_on_card;
}

size_t oom_quantised_blocks(const struct oom_plan *plan, const struct oom_param *q,
			    uint64_t block[OOM_QUANTISED_BLOCKS])
{
	const struct oom_quantised_format *f = oom_quantised_format(oom_plan_base(plan));
	const uint64_t group = plan->base_group ? (uint64_t)plan->base_group : f->group, in = q->cols ? q->cols : 1;
	const struct oom_packed w = {q->elems, group ? q->elems / in * oom_ceil_div(in, group) : 0, plan->double_quant};

	return f->blocks(&w, block);
}

enum oom_lora_over oom_quantised_over(const struct oom_tape *t)
{
	return format_of(t)->over;
}

bool oom_quantised_open(struct oom_tape *t, uint64_t out, uint64_t in, unsigned flags)
{
	if (!oom_plan_quantised(t->plan) || flags & OOM_NO_QUANT || (flags & OOM_IS_HEAD && !format_of(t)->head))
		return false;
	if (flags & OOM_DERIVED && !t->plan->quantise_derived)
		return false;
	if (format_of(t)->beside)
		format_of(t)->beside(t, out, in);
	return true;
}

void oom_quantised_table(struct oom_tape *t, uint64_t rows, uint64_t width)
{
	if (!oom_plan_quantised(t->plan) || rows != t->arch->vocab)
		return;
	for (unsigned i = 0; i < format_of(t)->tables; i++)
		oom_buffer(t, rows * width, oom_loaded_dtype(t->plan));
}

struct oom_val oom_dequantised(struct oom_tape *t, uint64_t elems, enum oom_dtype dt)
{
	const struct oom_quantised_format *f = format_of(t);
	const uint64_t copies = f->temps + (f->through_fp16 && dt != OOM_DT_F16);
	struct oom_val temps = oom_none(), w;

	if (f->scales)
		f->scales(t, elems);
	if (copies)
		temps = oom_scratch_hold(t, "unpacked weight", OOM_MONO_ONE, copies * elems, dt);
	w = oom_scratch_hold(t, "dequantised weight", OOM_MONO_ONE, elems, dt);
	oom_drop(t, temps);
	return w;
}

struct oom_val oom_made_whole(struct oom_tape *t, const char *name, uint64_t elems, const char *text)
{
	const struct oom_quantised_format *f = format_of(t);

	if (f->scales)
		f->scales(t, elems);
	t->sums->tally.unpacked += f->unpacks * (double)elems * t->mult;
	t->sums->tally.unpackings += f->unpacks > 0 ? t->mult : 0;
	return oom_new(t, name, OOM_MONO_ONE, (struct oom_dim){elems, text}, oom_four_bit_dtype(t->plan));
}

struct oom_val oom_dequantised_back(struct oom_tape *t, uint64_t elems, enum oom_dtype dt)
{
	struct oom_val w = oom_dequantised(t, elems, dt), many;

	if (!format_of(t)->repeats)
		return w;
	many = oom_scratch_hold(t, "weight of every sequence", t->m_b, elems, dt);
	oom_drop(t, w);
	return many;
}

/* Computes in the format's type and returns the input's: casts of input and bias are locals until it
 * returns, and its caller holds the input. */
struct oom_val oom_quantised_linear(struct oom_tape *t, const struct oom_linear *l, struct oom_val x)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	const struct oom_quantised_format *f = format_of(t);
	struct oom_val y, bias = l->bias, given = oom_share(t, x);
	int32_t n = -1;

	if (f->casts) {
		const enum oom_dtype to = f->to_of ? f->to_of(t->plan) : f->to;

		x = oom_op_cast(t, x, to);
		if (!oom_is_none(bias))
			bias = oom_op_cast(t, bias, to);
	}
	if (oom_wants_grad(t, x) || bias.rg) {
		n = oom_node(t, OOM_NODE_QUANTISED_LINEAR, f->node);
		oom_node_edge(t, n, x);
		oom_node_edge(t, n, bias);
		if (n >= 0)
			t->nodes[n].aux_width = l->in * l->out.n;
	}
	y = f->product(t, l->name, n, x, bias, l->in, l->out);
	oom_of_cublas(t, y.sto);
	if (oom_wants_grad(t, x) || bias.rg)
		y = oom_node_out(t, n, 0, y);
	oom_tape_product(t, x, l->in, l->out.n, false);
	t->sums->tally.unpacked += f->unpacks * (double)l->in * (double)l->out.n * t->mult;
	t->sums->tally.unpackings += f->unpacks > 0 ? t->mult : 0;
	y = oom_op_cast(t, y, dt);
	oom_done(t, x);
	oom_done(t, bias);
	oom_done(t, l->w);
	oom_drop(t, given);
	return y;
}
