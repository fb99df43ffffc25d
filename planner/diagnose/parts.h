/* Between the files of the crash decoder. */
#ifndef OOM_PARTS_H
#define OOM_PARTS_H

#include <string.h>

#include "oomplan/diagnose.h"

/* A word that may open a message. */
struct oom_trigger {
	const char *needle;
	const char *framework, *format;
	int strength;           /* 3: the allocator's own message, 2: a kill, 1: a hint */
	/* The same letters in another sense. */
	const char *const *not_before;  /* right behind it; ends with NULL */
	const char *const *not_after;   /* right before it */
	struct {
		const char *word;
		int reach;      /* bytes behind it; negative: before it; 0: anywhere before it */
	} needs, unless;
	const char *value;      /* what it must be followed by, behind blanks */
	bool alone;             /* the line holds nothing else, but a prefix in brackets */
	bool continues;         /* the second half of a message that may begin a line before */
};
/* Bytes of the shortest needle; how far a search may skip, by a hash of the three bytes its
 * window ends in. */
enum { OOM_TRIGGER_MIN = 6 };
static inline uint16_t oom_trigger_hash(const char *last)
{
	uint16_t two;

	memcpy(&two, last - 1, sizeof(two));
	return (uint16_t)(two * 7 ^ (unsigned)(unsigned char)last[-2] << 5);
}
/* Over all words: the shifts, and the words by their first bytes; 0 ends a chain. */
#define OOM_TRIGGERS_MAX 511
struct oom_trigger_index {
	uint8_t shift[65536];
	uint16_t first[256], next[OOM_TRIGGERS_MAX + 1];
	/* of each: its first four bytes, and how many it has */
	uint32_t head[OOM_TRIGGERS_MAX + 1];
	uint8_t length[OOM_TRIGGERS_MAX + 1];
};
extern const struct oom_trigger oom_triggers[];        /* words.c */
extern const size_t oom_n_triggers;
void oom_trigger_index_init(struct oom_trigger_index *index);
/* The trigger that matches at this place, or NULL.  left: bytes from at to the end. */
const struct oom_trigger *oom_trigger_at(const struct oom_trigger_index *index, const char *at,
					 size_t left, const char *begin);

/* Fills numbers and names from the text around a trigger: before..at..end. */
void oom_decode_numbers(struct oom_crash *c, const struct oom_trigger *t, const char *begin,
			const char *at, const char *end);
/* The allocated bytes of a PyTorch message alone. */
bool oom_decode_allocated(const char *at, const char *end, uint64_t *bytes);
void oom_decode_phase(struct oom_crash *c, const char *begin, const char *at, const char *end);
void oom_decode_causes(struct oom_crash *c, const char *begin, const char *at, const char *end);
/* own_line.c; the program is known. */
void oom_decode_own_line(struct oom_crash *c, const char *begin, const char *at, const char *end);

/* scan.c: calls hit for every place in [from, to) where a trigger may begin, in order; text goes on to end. */
typedef void (*oom_hit_fn)(void *ctx, const char *p);
void oom_scan(const struct oom_trigger_index *index, const char *from, const char *to, const char *end, oom_hit_fn hit,
	      void *ctx);
uint64_t oom_lines_in(const char *from, const char *to);

/* phase_rules.c; each table ends with a NULL word. "~" before it: the beginning of a word in the name of a frame's
 * function that speaks for the phase. */
struct oom_phase_rule {
	const char *word;
	enum oom_crash_phase phase;
};
extern const struct oom_phase_rule oom_phase_of_compiling[], oom_phase_of_format[], oom_phase_of_line[], oom_phase_of_frame[],
	oom_phase_of_placing[], oom_phase_of_inferring[], oom_phase_of_forward[],
	oom_phase_of_driver[], oom_phase_of_requester[], oom_phase_of_words[], oom_phase_of_command[], oom_phase_of_script[],
	oom_phase_of_prose[];

/* traceback.c: the frames before a message. */
struct oom_span {
	const char *from, *to;
};
bool oom_traceback(const char *begin, const char *at, const char *end, struct oom_span *s);
/* Leaves out what lies outside of an optimizer's closure. */
void oom_traceback_inside_closure(struct oom_span *s);
/* The lines that ran, copied into buf. */
struct oom_span oom_traceback_executed(const struct oom_span *s, char *buf, size_t size);

/* What a line of a log is doing, by the verb it begins with: "Loading weights", "Capturing CUDA graphs". over: it
 * says that this is done. */
enum oom_crash_phase oom_line_phase(const char *line, const char *end, bool *over);

/* The phase that a function's name speaks of; OOM_CRASH_UNKNOWN where it does not. */
enum oom_crash_phase oom_identifier_phase(const char *name, const char *end);

/* One of its words begins so. */
bool oom_identifier_has(const char *name, const char *end, const char *beginning);
/* phase_functions.c: the function of such a frame in [from, to), NULL for none. */
const char *oom_frame_of_verb(const char *from, const char *to, const char *verb, enum oom_crash_phase phase);

bool oom_phase_settle(struct oom_crash *c, enum oom_crash_phase phase, double confidence,
		      const char *why);
/* The first rule whose word is there, NULL for none; and settled by it. */
const struct oom_phase_rule *oom_phase_meets(const struct oom_phase_rule *rule, const char *from, const char *to);
bool oom_phase_by_word(struct oom_crash *c, const struct oom_phase_rule *rules, const char *from, const char *to, double confidence);
/* phase.c: a forward pass in these frames is training's; the message ends a traceback of its own. */
bool oom_phase_in_training(const struct oom_span *s);
bool oom_phase_ends_traceback(const struct oom_crash *c);
/* phase_frames.c: a model or a batch that goes to the card. */
bool oom_phase_by_placing(struct oom_crash *c, const struct oom_span *s);
/* phase_training.c; the phase is settled. */
bool oom_phase_trains(const struct oom_crash *c, const char *begin, const char *at, const char *end);
/* phase_log.c: by the names of scripts, by the lines nearest to the message; phase_verbs.c: by what its line says
 * failed. */
bool oom_phase_by_script(struct oom_crash *c, const char *begin, const char *end);
/* By the command that somebody shows: "swift export --merge_lora true", "python -m mlx_lm.lora". */
bool oom_phase_by_command(struct oom_crash *c, const char *begin, const char *end);
bool oom_phase_script_trains(const struct oom_crash *c, const char *begin, const char *end);
bool oom_phase_by_nearest(struct oom_crash *c, const char *begin, const char *at, const char *end);
bool oom_phase_by_bar(struct oom_crash *c, const char *begin, const char *line, const char *stop);
bool oom_phase_by_failure(struct oom_crash *c, const char *line, const char *at);
/* phase_people.c: by single words of theirs, and by what they count: "at iteration 4900". */
enum oom_crash_phase oom_phase_of_spoken(const char *word, const char *end);
/* "always when the first epoch is over"; and a bar stands right above: what the code above it began has gone on. */
bool oom_people_stepped(const char *begin, const char *end);   /* "runs fine for a few steps" */
bool oom_phase_ends_epoch(const char *begin, const char *end);
bool oom_bar_above(const char *from, const char *at);
bool oom_phase_by_people(struct oom_crash *c, const char *begin, const char *end);
/* phase_prose.c: by what stands behind a "but" in a sentence that praises something else before it. */
bool oom_phase_by_contrast(struct oom_crash *c, const char *begin, const char *end);
/* What is named behind p because it is not what failed: "training works". */
bool oom_phase_is_spared(const char *p, const char *end);
/* phase_sentence.c: what a line's words say was going on, *from and *to the words that do; and whether it is of a failure. */
enum oom_crash_phase oom_phase_of_sentence(const char *line, const char *stop, const char **from, const char **to);
bool oom_complains(const char *from, const char *to);
/* phase_prose.c: by what somebody says about the failure in words of his own: "OOM when saving the model". */
bool oom_phase_by_prose(struct oom_crash *c, const char *begin, const char *at, const char *end);
/* By names, each true when one spoke: of XLA's executable, of the functions of the frames before
 * at, of Ray's workers behind it. */
bool oom_phase_by_executable(struct oom_crash *c, const char *line, const char *end);
bool oom_phase_by_functions(struct oom_crash *c, const char *begin, const char *at);
/* An evaluation, the making of data or a checkpoint that stands deeper than the training it is part of; of the frames
 * before at. */
bool oom_phase_by_deeper(struct oom_crash *c, const char *begin, const char *at);
bool oom_phase_by_workers(struct oom_crash *c, const char *at, const char *end);

/* Finds needle in [begin, end); NULL when absent. */
const char *oom_text_find(const char *begin, const char *end, const char *needle);
/* The last one of them. */
const char *oom_text_last(const char *begin, const char *end, const char *needle);
const char *oom_line_begin(const char *begin, const char *at);
const char *oom_line_end(const char *at, const char *end);
/* Takes escape sequences and control characters out of text, which has room for a final NUL; a
 * carriage return becomes a new line.  *at: an offset into it, moved along.  The new size. */
size_t oom_text_clean(char *text, size_t size, size_t *at);
/* [at, end) as one line of single blanks, ended by a NUL: lines that a narrow page or a box broke
 * are joined, and what every line of the log begins with is left out.  Its length. */
size_t oom_text_flatten(const char *begin, const char *at, const char *end, char *out, size_t room);
/* The same where lines were broken in the middle of words: no blank stands for a line's end. */
size_t oom_text_flatten_tight(const char *begin, const char *at, const char *end, char *out, size_t room);

/* A number with its unit at p; *after behind it.  bare: a number alone counts bytes. */
bool oom_number_at(const char *p, const char *end, bool bare, uint64_t *bytes, const char **after);
/* A number that is not known yet, and its text. */
void oom_number_put(struct oom_crash *c, enum oom_crash_number k, uint64_t bytes, const char *from,
		    const char *to);
/* "word 1.00 GiB": behind the number, or NULL. */
const char *oom_number_follows(struct oom_crash *c, enum oom_crash_number k, const char *begin,
			       const char *end, const char *word, bool bare);
/* "1.00 GiB word": the number ends where word begins. */
void oom_number_precedes(struct oom_crash *c, enum oom_crash_number k, const char *begin,
			 const char *end, const char *word);
/* The bytes of an array whose shape and type TensorFlow, or NumPy, printed. */
void oom_number_of_tf_shape(struct oom_crash *c, const char *at, const char *end);
void oom_number_of_numpy_shape(struct oom_crash *c, const char *at, const char *end);
void oom_gpu_index(struct oom_crash *c, const char *begin, const char *end);

/* Where a reader looks: the excerpt, the message, and what follows it in one line. */
struct oom_excerpt {
	const char *begin, *at, *end;
	const char *after, *stop;
};
/* XLA's: the program's totals and largest buffer; the line of a refusal; a TPU's; the allocator's table, before a
 * message and alone. */
void oom_xla_program(struct oom_crash *c, const struct oom_excerpt *x);
void oom_xla_line(struct oom_crash *c, const struct oom_excerpt *x);
void oom_xla_hbm(struct oom_crash *c, const struct oom_excerpt *x);
void oom_xla_pool(struct oom_crash *c, const struct oom_excerpt *x);
void oom_xla_dump(struct oom_crash *c, const struct oom_excerpt *x);

/* The table of torch.cuda.memory_summary(): its counters, its numbers, and what it says alone. */
void oom_summary_counters(struct oom_crash *c, const char *begin, const char *end);
void oom_summary_numbers(struct oom_crash *c, const struct oom_excerpt *x);
void oom_causes_of_summary(struct oom_crash *c, const char *begin, const char *end);

/* ggml.c */
void oom_read_ggml(struct oom_crash *c, const struct oom_excerpt *p);
void oom_read_ggml_buffer(struct oom_crash *c, const struct oom_excerpt *p);

/* PyTorch's sentence, and the era of its wording. */
void oom_torch_numbers(struct oom_crash *c, const char *at, const char *end);
void oom_torch_format(struct oom_crash *c, const char *at, const char *end);
/* Everybody else's. */
void oom_other_numbers(struct oom_crash *c, const char *begin, const char *at,
		       const char *end_of_text, const char *after, const char *end);

#endif
