/* The engines that train. */
#ifndef OOM_ENGINES_H
#define OOM_ENGINES_H

#include "oomplan/engine.h"
#include "oomplan/model.h"
#include "oomplan/plan.h"
#include "oomplan/rules.h"

struct oom_alive;

/* One engine: what it does to a step is in the passes that ask for these traits. */
struct oom_engine {
	struct oom_engine_info info;
	/* divides states as DeepSpeed's ZeRO does, or wraps layers as FSDP does; the lowest stage
	 * that it has */
	bool partitions, wraps_units;
	int64_t lowest_stage;
	bool gathers_apart;             /* all-gathers into a buffer of its own (fully_shard) */
	bool buckets;                   /* DDP's, while nothing is divided */
	bool own_adapters;      /* in the recipe's type: no PEFT keeps them in fp32 */
	/* its own models copy keys and values to all heads (modules/attention.py: expand, flatten), make no
	 * mask, and are compiled layer by layer */
	bool copies_heads;
	bool upcasts;                   /* what trains whole is kept in fp32 under autocast, whatever it was loaded in */
	bool pure_bf16;                 /* no autocast, no fp32 master */
	bool whole_offload;             /* to the CPU everything or nothing */
	bool full_state_dict;           /* gathers the optimizer's state too when it saves */
	bool fp32_master;               /* of 16-bit weights, when it divides */
	bool fused_update;              /* one kernel updates many tensors whatever form of the optimizer is named */
	bool waits;                     /* computes while it gathers and reduces less than it waits */
	double host_bytes_s;            /* of a node's memory that its update on the CPU reaches; 0: as torch's fused one */
	/* Hooks in Python gather and free divided weights, in every pass: what one takes, of a unit that is wrapped
	 * (a layer, and each adapter's matrix; from stage 2 on), or of a tensor (from 3 on). */
	double unit_hook_us, tensor_hook_us;
	/* Megatron-core's layers: cuDNN's attention through TransformerEngine (step/time/cards.c), and tensor
	 * collectives of the backward pass beside the weights' gradients (tensor_parallel/layers.py) */
	bool core_layers;
	bool pipe_engine;               /* DeepSpeed's pipeline engine runs Megatron's own layers */
	const char *approximates;       /* what of its step is, once it divides anything */
};
const struct oom_engine *oom_engine_of(const struct oom_plan *plan);
/* What those hooks take of the processor in a micro-step. */
double oom_engine_hooks_s(const struct oom_plan *plan, const struct oom_work *work);
/* Of a micro-step's launches, the share that is left where graphs hold the others. */
double oom_engine_launched(const struct oom_plan *plan, const struct oom_work *work);
/* What an engine's own layers take of the processor in a micro-step, below which none is; 0 where they are
 * the model's. */
double oom_engine_layers_s(const struct oom_plan *plan, const struct oom_work *work);

/* Whether the engine trains 16-bit weights where the plan says autocast (oom_engine_recast: the plan as
 * it then trains). */
bool oom_engine_recasts(const struct oom_plan *plan);
/* Megatron-core's layers run.  Not where its ranks shard weights too (stage 3): that stands for FSDP over
 * tensor-parallel layers of PyTorch's own. */
bool oom_engine_core_layers(const struct oom_plan *plan);
/* True when the plan's states, or its layers, are divided between GPUs. */
bool oom_engine_divides(const struct oom_plan *plan);
/* Its own rank schedules are in place of the recorded step's. */
bool oom_engine_own_ranks(const struct oom_plan *plan);
/* FSDP's mixed precision computes in 16 bit on parameters kept in 32: the tape is then recorded
 * in 16 bit. */
bool oom_engine_casts(const struct oom_plan *plan);
/* The same of adapters in fp32 beside a base in 16 bit, under FSDP2 alone: what a layer gathers is in 16 bit, and PEFT, which
 * gives inputs the type of an adapter's weight (tuners/tuners_utils.py _cast_input_dtype), casts nothing.  FSDP1 shows it
 * the shards, in fp32, in the first step.  (data/h100.csv, fsdp2-8b-lora-8.) */
bool oom_engine_casts_adapters(const struct oom_plan *plan);
/* Either of them: what is trained is in 16 bit on the tape and in 32 in shards, gradients and states. */
bool oom_engine_casts_trained(const struct oom_plan *plan);

/* DeepSpeed's own estimators (deepspeed/runtime/zero/stage_1_and_2.py and stage3.py,
 * estimate_zero{2,3}_model_states_mem_needs), bytes per GPU and per node, for comparison. */
struct oom_ds_estimate {
	double gpu, cpu;
};
struct oom_ds_estimate oom_ds_estimate2(double n_params, double gpus_per_node, double nodes,
					bool offload);
struct oom_ds_estimate oom_ds_estimate3(double n_params, double largest_layer, double gpus_per_node,
					double nodes, bool offload_optimizer, bool offload_params,
					bool zero_init);

/* An engine whose ranks have schedules of their own in place of the recorded step's.  Rooms above this one
 * bring theirs; which there are stands in one table (models/rank_engines.c). */
struct oom_player;
struct oom_rank_engine {
	/* phases, work, host bytes and what the report says, of the fullest rank; nothing reserved */
	enum oom_status (*evaluate)(const struct oom_model *model, const struct oom_plan *plan,
				    struct oom_eval *out, struct oom_alive *alive,
				    struct oom_error *err);
	/* the same rank's step, played into the player's allocator, which was cleared; OOM_ERR_LIMIT
	 * where it is too long for that */
	enum oom_status (*play)(const struct oom_model *model, const struct oom_plan *plan,
				struct oom_player *player, struct oom_error *err);
	enum oom_status (*ledger)(const struct oom_model *model, const struct oom_plan *plan,
				  oom_ledger_fn fn, void *ctx, struct oom_error *err);
	bool workspaces_inside;         /* cuBLAS's are among its own rows */
};
/* The plan's, or NULL: its step is the recorded one. */
const struct oom_rank_engine *oom_rank_engine_of(const struct oom_plan *plan);

#endif
