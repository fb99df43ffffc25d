/* What `oomplan box` found, for people and for machines. */
#ifndef OOM_CLI_BOX_OUT_H
#define OOM_CLI_BOX_OUT_H

#include "commands.h"
#include "oomplan/box.h"

/* Formats of --emit that say which machine: the box writes their resources itself. */
enum oom_box_yaml { OOM_YAML_NONE, OOM_YAML_SKYPILOT, OOM_YAML_DSTACK };

/* How much of it is shown. */
struct oom_box_view {
	const char *tokens_text;        /* of the whole training ("15B"), or NULL */
	double tokens;                  /* the same as a number */
	int64_t top;                    /* offers that fit */
	const struct oom_box_query *query;
};

/* box_lists.c: reads the bundled list (unless own_only and there are others) and `lists`; whether every name of
 * --provider (NULL: none) is in them, as nobody's machines are no answer.  The exit status, 0 where all is well. */
int oom_box_offers(const struct oom_list *lists, bool own_only, struct oom_offers *o);
int oom_box_providers(const char *names, const struct oom_offers *o);
/* report_quote.c: rows of days and dollars, the front of both, what was reckoned with */
/* A column's heading: tokens a second, or samples where they are no texts. */
const char *oom_box_speed_head(const struct oom_box *x);
void oom_quote_rows(const struct oom_plan *asked, const struct oom_offers *o, const struct oom_box *items,
		    size_t from, size_t to);
void oom_quote_front(const struct oom_offers *o, const struct oom_boxes *b, int64_t top);
/* How many of them see another number of sequences in a step than was asked. */
void oom_box_steps(const struct oom_plan *asked, const struct oom_boxes *b);
void oom_quote_notes(const struct oom_plan *asked, const struct oom_boxes *b, const struct oom_box_view *view);
/* "2 x 8 x H100-SXM5-80GB". */
void oom_quote_cards(const struct oom_offers *o, const struct oom_box *x, char *text, size_t size);
/* The front as a picture. */
enum oom_status oom_quote_svg(const char *path, const struct oom_offers *o, const struct oom_boxes *b,
			      const struct oom_box_query *q, struct oom_error *err);
/* The knobs in which a plan differs from the one asked for, but for hardware. */
void oom_box_changes(const struct oom_plan *asked, const struct oom_plan *p, char *out, size_t size);


/* box_compare.c: "A,B", each an instance, knobs or both; the exit status. */
int oom_box_compare(const char *text, const struct oom_target *target, const struct oom_offers *offers,
		    const struct oom_boxes *boxes, const struct oom_box_query *query);
/* report_box.c */
void oom_box_text(const struct oom_job *job, const struct oom_target *target,
		  const struct oom_offers *offers, const struct oom_boxes *boxes, const struct oom_box_view *view);
/* box_formats.c */
void oom_box_json(const struct oom_plan *asked, const struct oom_target *target,
		  const struct oom_offers *offers, const struct oom_boxes *boxes);
/* What of the lists could not be used, on standard error: nothing is left out in silence. */
void oom_box_left_out(const struct oom_offers *offers);
void oom_box_csv(const struct oom_offers *offers, const struct oom_boxes *boxes);
void oom_box_yaml(FILE *out, const struct oom_offers *offers, const struct oom_box *box,
		  enum oom_box_yaml form, bool spot);
/* A knob that stands in columns of its own, or follows from the card. */
bool oom_box_is_hardware(const struct oom_option *knob);

#endif
