/* DeepSpeed's pipeline engine under Megatron's layers: what it holds besides them.
 *
 * DeepSpeed edaa722 and, where it did the same or otherwise, 3401d25 (February 2022) and 56c5223 (its first
 * BF16_Optimizer).  P parameters of the rank, D data-parallel ranks; gradients of a parameter are tensors of
 * their own, not one buffer.
 *
 *   bf16   BF16_Optimizer divides master and states over D whatever the stage.  Gradients are added to
 *          whole fp32 ones, 4 P; the 16-bit ones, 2 P, stay from one backward to the next, which zeroes
 *          them (bf16_optimizer.py update_hp_grads, clear_lp_grads; pipe/engine.py _exec_backward_pass
 *          asks for clear_lp_grads=False).  The step's reduction is in 16 bit: a copy of all of them at
 *          once, as the flat fp32 buffer is one tensor (engine.py allreduce_bucket, communication_data_type)
 *   fp16   gradients, 2 P, from the first backward to the step's end.  ZeRO-1: a bucket of 5e8 is
 *          flattened and reduced at a time (contiguous_gradients means nothing in stage 1, engine.py
 *          _configure_zero_optimizer); what others own is let go, and the rank's part is made flat, 2 P/D, and
 *          fp32, 4 P/D (zero/stage_1_and_2.py step).  Stage 0: fp32 copies of all gradients beside one
 *          flat tensor of them, 8 P (fp16/fused_optimizer.py step)
 *   pipe   a pass's output stays until its backward, a part of it with tensor parallelism
 *          (pipe_partitioned); without, what was received stays beside the copy that the layers run on
 *          (pipe/engine.py pipe_buffers, _exec_forward_pass)
 *   loss   outputs of the last stage, the logits, stay in both of its buffers (_exec_backward_pass returns
 *          before it lets them go; schedule.py num_pipe_buffers is at least two) */
#include <math.h>

#include "parts.h"

/* pipe/engine.py MEMORY_OPT_ALLREDUCE_SIZE, and zero's reduce_bucket_size */
#define BUCKET 5e8

bool oom_pipe_divides(const struct oom_megatron *m)
{
	return m->pipe_engine && m->precision == OOM_MG_BF16;
}

bool oom_pipe_passing_gradients(const struct oom_megatron *m)
{
	return m->pipe_engine && m->precision != OOM_MG_BF16;
}

double oom_pipe_second_gradients(const struct oom_megatron *m, double params)
{
	return m->pipe_engine && m->precision == OOM_MG_BF16 ? 2 * params : 0;
}

double oom_pipe_own_gradients(const struct oom_megatron *m)
{
	return !m->pipe_engine ? 0 : m->precision == OOM_MG_FP32 ? 4 : 2;
}

double oom_pipe_buffers(const struct oom_megatron *m, const struct mg_chunk *c)
{
	const double hidden = 2 * oom_mg_tokens(m, (double)m->seq) * (double)m->hidden;

	if (!m->pipe_engine || m->pp == 1)
		return 0;
	return m->tp > 1 ? (c->loss ? 0 : hidden / (double)m->tp) :
			   (double)(!c->embedding + !c->loss) * hidden;
}

double oom_pipe_logits(const struct oom_megatron *m)
{
	/* two buffers of 16-bit ones, their fp32 copy, in which softmax and gradient are made, and its
	 * cast back */
	return m->precision == OOM_MG_FP32 ? 12 : 2 * 2 + 4 + 2;
}

/* The step's own tensors, in the order they come; those alone go before the next. */
void oom_pipe_step(const struct oom_megatron *m, double params, double ranks, struct mg_step *s)
{
	const double bucket = (m->precision == OOM_MG_FP32 ? 4 : 2) * fmin(params, BUCKET),
		     part = params / (m->distributed_optimizer ? ranks : 1);

	s->n = 0;
	s->gradients_go = false;
	if (!m->pipe_engine)
		return;
	if (m->precision == OOM_MG_BF16) {
		s->block[s->n++] = (struct mg_step_block){2 * params, true, false};
		return;
	}
	s->block[s->n++] = (struct mg_step_block){bucket, true, false};
	if (m->precision == OOM_MG_FP32)
		return;
	/* the part's gradients are views of whole ones, which stay so long */
	s->gradients_go = m->distributed_optimizer;
	if (m->distributed_optimizer) {
		s->block[s->n++] = (struct mg_step_block){2 * part, false, false};
		s->block[s->n++] = (struct mg_step_block){2 * part, false, false};
	} else {
		s->block[s->n++] = (struct mg_step_block){4 * part, false, true};
	}
	s->block[s->n++] = (struct mg_step_block){4 * part, false, false};
}

/* The most of them together, beyond what is there between the backward and the step. */
double oom_mg_step_peak(const struct mg_step *s, double gradients)
{
	double most = 0, stay = s->gradients_go ? -gradients : 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->block[i].alone)
			most = fmax(most, s->block[i].bytes);
		else
			stay += s->block[i].bytes;
	return fmax(most, stay);
}
