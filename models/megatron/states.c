/* What a Megatron rank holds between steps: weights, gradients, optimizer state in every precision and sharding,
 * and what libraries keep for good (workspaces, buffers, 8-bit copies). */
#include <math.h>

#include "rank.h"

/* Ranks the optimizer's part lies over.  A layer-wise optimizer gives each rank whole parameters, of
 * which the mean is taken here (layer_wise_optimizer.py: as even as it can pack them). */
double oom_mg_optimizer_ranks(const struct oom_megatron *m, double ranks)
{
	return m->distributed_optimizer || m->fsdp || m->layerwise || oom_pipe_divides(m) ?
		       ranks / (double)m->optimizer_instances :
		       1;
}

/* Muon has momentum for the layers' matrices and Adam for all else (optimizer/__init__.py,
 * is_muon_managed_matrix_parameter). */
static double moment_bytes(const struct oom_megatron *m, double params, double matrices)
{
	const double adam = (double)(m->exp_avg_bytes + m->exp_avg_sq_bytes);

	return m->optimizer == OOM_MG_SGD ? 4 * params :
	       m->optimizer == OOM_MG_MUON ? 4 * matrices + adam * (params - matrices) :
					     adam * params;
}

/* What 8-bit recipes keep, on a card whose units multiply in any layout and on one that wants the
 * transpose as well (Hopper, Ada): TransformerEngine d0067d0 pytorch/csrc/quantizer.cpp,
 * is_non_tn_fp8_gemm_supported; scales are one per 128 x 128 of weights and per 128 of inputs
 * (fp32), per 32 (one byte), per 16 (one byte). */
static const struct mg_fp8 fp8s[][2] = {
	[OOM_MG_FP8_TENSORWISE] = {{2, 2, 1}, {1, 1, 1}},
	[OOM_MG_FP8_BLOCKWISE] = {{2, 2, 1 + 4.0 / 128}, {2, 2, 1 + 4.0 / 128}},
	[OOM_MG_FP8_MXFP8] = {{2 + 2.0 / 32, 2 + 2.0 / 32, 1 + 1.0 / 32},
			      {2 + 2.0 / 32, 2 + 2.0 / 32, 1 + 1.0 / 32}},
	[OOM_MG_FP8_NVFP4] = {{1 + 2.0 / 16, 1 + 2.0 / 16, 0.5 + 1.0 / 16},
			      {1 + 2.0 / 16, 1 + 2.0 / 16, 0.5 + 1.0 / 16}},
};

const struct mg_fp8 *oom_mg_fp8(const struct oom_megatron *m)
{
	return &fp8s[m->fp8_recipe][m->gpu_arch == OOM_MG_BLACKWELL];
}

/* Elements of the rank's matrices that are multiplied in fp8: without the layers at both ends where
 * these stay in 16 bit. */
static double in_fp8(const struct oom_megatron *m, const struct mg_params *p, const struct mg_chunk *c,
		     size_t n, bool expert)
{
	double layers = 0, ends = 0;

	if (!m->fp8)
		return 0;
	for (size_t i = 0; i < n; i++) {
		layers += (double)(c[i].dense + c[i].moe + c[i].mtp);
		ends += m->ends_in_bf16 ? (c[i].embedding ? 1 : 0) + (c[i].loss ? 1 : 0) : 0;
	}
	return (expert ? p->expert_matrices : p->matrices) *
	       (layers > ends ? (layers - ends) / layers : m->stack == OOM_MG_T5);
}

/* Bytes a parameter: weight, gradient buffer, fp32 master, moments; and over how many ranks each
 * lies.  Of them `eight` elements are multiplied in fp8.  Frozen ones have a weight alone: gradient buffers and optimizers
 * are of what requires a gradient (distributed_data_parallel.py, optimizer/__init__.py), adapters beside them. */
static double states(const struct oom_megatron *m, struct oom_mg_rank *o, double params, double adapters,
		     double matrices, double eight, double ranks, const char *which)
{
	const bool fp32 = m->precision == OOM_MG_FP32, fp16 = m->precision == OOM_MG_FP16;
	const double shard = oom_mg_optimizer_ranks(m, ranks);
	const bool wshard = m->fsdp && m->fsdp_sharding == OOM_MG_OPTIM_GRADS_PARAMS;
	const bool gshard = m->fsdp && m->fsdp_sharding >= OOM_MG_OPTIM_GRADS;
	const double kept = m->fp8_params ? eight * (oom_mg_fp8(m)->param - 2) : 0,
		     grad = fp32 ? 4 :
			    fp16 ? 2 :
				   (double)m->grad_bytes;
	const double trained = m->lora_r ? adapters : params;
	const double w = ((fp32 ? 4 : 2) * (params + adapters) + kept) / (wshard ? shard : 1),
		     g = grad * trained / (gshard ? shard : 1);
	const double master = fp32 ? 0 : (double)m->main_param_bytes * trained / shard;
	/* fp16 gradients are unscaled into an fp32 copy, freed when the next step begins */
	const double copy = fp16 && !m->pipe_engine ? 4 * trained / shard : 0,
		     second = oom_pipe_second_gradients(m, params), mom = moment_bytes(m, trained, m->lora_r ? trained : matrices) / shard;

	oom_mg_row(o, which, "weights: 2 B (4 in fp32) per parameter", OOM_MG_ROW_WEIGHTS, w);
	oom_mg_row(o, "gradient buffer",
	    "grad_dtype per parameter, never sharded by the distributed optimizer",
	    oom_pipe_passing_gradients(m) ? OOM_MG_ROW_PASSING : OOM_MG_ROW_GRADS, g);
	oom_mg_row(o, "16-bit gradients", "2 B per parameter beside the fp32 ones", OOM_MG_ROW_LOW_GRADS, second);
	oom_mg_row(o, "master weights", "4 B / (dp x cp) with the distributed optimizer",
	    OOM_MG_ROW_MASTER, master);
	oom_mg_row(o, "optimizer state", "exp_avg + exp_avg_sq; muon: momentum of matrices", OOM_MG_ROW_OPTIMIZER, mom);
	oom_mg_row(o, "fp32 gradients", "4 B, fp16 only, between the steps", OOM_MG_ROW_COPIES, copy);
	o->optimizer_bytes += (uint64_t)mom;
	o->static_bytes += (uint64_t)(w + g + second + master + mom + copy);
	return copy;
}

/* cuBLAS allocates a workspace per thread that multiplies (forward, autograd) inside the caching
 * allocator: 8.125 MiB before Hopper, 32 MiB from it on (ATen CUDABlas.cpp), or what
 * CUBLAS_WORKSPACE_CONFIG says; TransformerEngine one of 4 or 32 MiB
 * (transformer_engine/pytorch/module/base.py get_cublas_workspace_size_bytes), and four more for
 * grouped GEMM's streams. */
static double workspaces(const struct oom_megatron *m, struct oom_mg_rank *o)
{
	const bool hopper = m->gpu_arch != OOM_MG_AMPERE;
	const double one = m->cublas_kib ? (double)m->cublas_kib * 1024 :
			   hopper	 ? 32.0 * 1048576 :
					   8519680.0;
	const double te = m->local_layers ? 0 : hopper ? 32.0 * 1048576 : 4.0 * 1048576;
	const double grouped = m->experts && m->moe_grouped_gemm ?
				       4 * (hopper ? 32.0 : 4.0) * 1048576 :
				       0;

	oom_mg_row(o, "cuBLAS workspaces", "2 threads x workspace", OOM_MG_ROW_FIXED, 2 * one);
	oom_mg_row(o, "TransformerEngine workspace", "4 MiB, 32 MiB from Hopper on", OOM_MG_ROW_FIXED, te);
	oom_mg_row(o, "grouped GEMM workspaces", "4 streams", OOM_MG_ROW_FIXED, grouped);
	return 2 * one + te + grouped;
}

/* Megatron's local layers write attention's scores into a buffer that is kept for good, and gather divided
 * sequences into the same one (core/utils.py GlobalMemoryBuffer "mpu"; transformer/dot_product_attention.py
 * matmul_input_buffer, tensor_parallel/layers.py all_gather_buffer). */
static double global_buffer(const struct oom_megatron *m, struct oom_mg_rank *o)
{
	const double scores = oom_mg_scores_buffer(m, (double)m->seq),
		     gathered = m->sequence_parallel ?
					2 * oom_mg_tokens(m, (double)m->seq) * (double)m->hidden :
					0,
		     sum = m->local_layers ? fmax(scores, gathered) : 0;

	oom_mg_row(o, "global memory buffer", "2 B x the larger of b a s s / t and, gathered, T h", OOM_MG_ROW_FIXED,
	    sum);
	return sum;
}

/* With fused weight-gradient accumulation the gradient goes straight into the buffer, and autograd
 * is handed a 16-bit dummy: one for every shape of matrix, kept for good
 * (transformer_engine/pytorch/module/base.py get_dummy_wgrad). */
static double dummies(const struct oom_megatron *m, const struct mg_chunk *c, size_t n,
		      struct oom_mg_rank *o)
{
	bool dense = m->stack == OOM_MG_T5, moe = false;
	double sum = 0;

	if (!m->grad_accum_fusion || m->local_layers || m->lora_r)
		return 0;       /* frozen weights have no gradient */
	for (size_t i = 0; i < n; i++) {
		dense |= c[i].dense > 0;
		moe |= c[i].moe > 0 || c[i].mtp > 0;
	}
	sum = 2 * oom_mg_matrix_elems(m, dense, moe && m->experts);
	oom_mg_row(o, "dummy weight gradients", "2 B x one matrix of every shape", OOM_MG_ROW_FIXED, sum);
	return sum;
}

/* Weights in 8 bit beside the 16-bit ones: each module quantises its weight in the first micro-batch of
 * a step, into a workspace that it keeps for good (base.py _fp8_workspaces, is_first_microbatch in
 * megatron/core/extensions/transformer_engine.py). */
static double eight_bit_copies(const struct oom_megatron *m, double eight, struct oom_mg_rank *o)
{
	const double sum = m->fp8_params || m->local_layers ? 0 : eight * oom_mg_fp8(m)->cached;

	oom_mg_row(o, "8-bit copies of weights", "rows, and their transpose where the card wants it",
	    OOM_MG_ROW_FIXED, sum);
	return sum;
}

/* Weights, gradients, optimizer state, and what is kept for good: rows of o and its sums.  *copies: bytes of them that
 * are there between the steps alone. */
void oom_mg_between_steps(const struct oom_megatron *m, const struct mg_params *sum, const struct mg_chunk *c, size_t n,
			  struct oom_mg_rank *o, double *copies)
{
	double eight = in_fp8(m, sum, c, n, false);
	struct mg_step step;

	o->params = (uint64_t)sum->dense;
	o->expert_params = (uint64_t)sum->expert;
	o->trained_params = (uint64_t)(m->lora_r ? sum->adapters + sum->expert_adapters : sum->dense + sum->expert);
	*copies = states(m, o, sum->dense, sum->adapters, sum->matrices, eight, (double)(m->dp * m->cp),
			 "dense weights");
	if (sum->expert > 0) {
		const double more = in_fp8(m, sum, c, n, true);

		*copies += states(m, o, sum->expert, sum->expert_adapters, sum->expert_matrices, more,
				  (double)(m->n_gpus / (m->etp * m->ep * m->pp)), "expert weights");
		eight += more;
	}
	oom_pipe_step(m, sum->dense + sum->expert, (double)(m->dp * m->cp), &step);
	oom_mg_row(o, "the step's own", "a bucket that is reduced; the rank's part of the gradients, flat and in fp32",
		   OOM_MG_ROW_STEP, oom_mg_step_peak(&step, 2 * (sum->dense + sum->expert)));
	o->fixed_bytes = (uint64_t)(workspaces(m, o) + global_buffer(m, o) + dummies(m, c, n, o) +
				    eight_bit_copies(m, eight, o));
}
