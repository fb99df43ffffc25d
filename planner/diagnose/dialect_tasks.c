/* What can be changed by what a model works on, where its program is a script of somebody's own and has no words: images
 * are made smaller or cut into tiles, recordings into pieces, graphs are sampled. Plain facts of the data, no program's
 * options: those come from the run's own command line (told_words.c). */
#include "answer.h"

#define L(name) [OOM_LEVER_##name]
/* Weights of some hundred million parameters: there is next to nothing to divide, to leave on the host or to adapt. */
#define SMALL L(OFFLOAD) = "", L(SPREAD) = "", L(SHARD) = "", L(ADAPTER) = ""

const struct oom_dialect oom_dialects_tasks[] = {
	{"images", "torch", "", "",
	 .say = {L(LESS) = "less at once: a smaller batch; where it is one already smaller images, or crops or tiles of them",
	  L(LENGTH) = "smaller images or crops (this changes what is learnt)",
	  L(CONTEXT) = "smaller images: scale them down first, or pass them in tiles or crops; memory grows with their pixels",
	  L(REQUESTS) = "one image at a time: a smaller inference batch",
	  L(EVAL_BATCH) = "validation images one at a time under torch.no_grad(), and scaled down or in tiles where they are larger than the training's crops",
	  L(LIMIT) = "make that one tensor smaller: a smaller image, crops or tiles of it, or attention that keeps no matrix of all pixels; free memory does not help",
	  L(QUANT) = "the model and its input in 16 bits: .half() on both, or torch.autocast", SMALL}},
	{"video", "images", "", "",
	 .say = {L(LESS) = "less at once: a smaller batch; where it is one already fewer or smaller frames",
	  L(LENGTH) = "fewer frames of a clip, or smaller ones (this changes what is learnt)",
	  L(CONTEXT) = "fewer frames at a time (the clip in pieces), or smaller frames",
	  L(REQUESTS) = "one clip at a time: a smaller inference batch"}},
	{"volumes", "images", "", "",
	 .say = {L(LESS) = "less at once: a smaller batch; where it is one already smaller patches of the volume",
	  L(LENGTH) = "smaller patches of the volume (this changes what is learnt)",
	  L(CONTEXT) = "the volume in patches (a sliding window), put together on the host",
	  L(EVAL_BATCH) = "the volume in patches (a sliding window) under torch.no_grad(), put together on the host"}},
	{"audio", "torch", "", "",
	 .say = {L(LESS) = "less at once: a smaller batch (of recordings or seconds); where it is one already shorter recordings",
	  L(LENGTH) = "shorter recordings: cut the longest or leave them out (this changes what is learnt)",
	  L(LONGEST) = "the longest recordings decide: cap their duration, and fill batches by seconds instead of a count",
	  L(CONTEXT) = "the recording in shorter pieces, put together afterwards",
	  L(REQUESTS) = "one recording at a time",
	  L(LIMIT) = "make that one tensor smaller: shorter recordings or pieces of them, or attention without the full score matrix; free memory does not help",
	  L(QUANT) = "the model in 16 bits: .half() or torch.autocast", SMALL}},
	{"graphs", "torch", "", "",
	 .say = {L(LESS) = "a part of the graph at a time: sampled neighbours or clusters of nodes instead of all of them, the adjacency in sparse form",
	  L(BATCH) = "a part of the graph at a time: sampled neighbours or clusters of nodes instead of all of them, the adjacency in sparse form; of many graphs fewer in a batch",
	  L(LENGTH) = "fewer hidden channels, heads or layers (this changes what is learnt)",
	  L(REQUESTS) = "a part of the nodes at a time, with their neighbours, or all of them on the CPU",
	  L(LIMIT) = "make that one tensor smaller: the adjacency in sparse form, or a part of the nodes at a time; free memory does not help",
	  L(CONTEXT) = "",
	  L(QUANT) = "", SMALL}},
	{"agents", "torch", "", "",
	 .say = {L(LESS) = "fewer environments at once, shorter rollouts or a smaller minibatch; a replay buffer in host memory",
	  L(BATCH) = "fewer environments at once, shorter rollouts or a smaller minibatch; a replay buffer in host memory",
	  L(LENGTH) = "smaller observations (this changes what is learnt)",
	  L(REQUESTS) = "fewer environments at once",
	  L(QUANT) = "", SMALL}},
	{"atoms", "torch", "", "",
	 .say = {L(LESS) = "a smaller system at once: fewer atoms or residues, or a shorter cutoff (fewer neighbours of each); fewer structures in a batch",
	  L(LENGTH) = "smaller structures or crops of them (this changes what is learnt)",
	  L(CONTEXT) = "a smaller system: fewer atoms or residues, or a shorter cutoff (fewer neighbours of each)",
	  L(REQUESTS) = "one structure at a time",
	  L(LIMIT) = "make that one tensor smaller: a smaller structure, a shorter cutoff, or work in chunks where the model has them; free memory does not help",
	  L(QUANT) = "", SMALL}},
	{.name = NULL},
};
