/* What agree.c and agree_tables.c hold everything against: estimate's word on a question. */
#ifndef PROPERTY_AGREE_H
#define PROPERTY_AGREE_H

#include "oomplan/answer.h"
#include "question.h"

/* The question as the library takes it. */
struct oom_question agree_asked(const struct subject *s, const struct question *q);
/* Settles o and estimates it; false: it is refused. */
bool agree_estimate(const struct subject *s, struct oom_question *o, struct oom_judged *out);
/* Whether `who` says what estimate says; if not, words say so. */
enum finding agree_same(const char *who, uint64_t used, bool fits, const struct oom_judged *truth, char *words,
			size_t size);

/* agree_tables.c: sweeps, a sweep over cards, and a runs file */
law_fn agree_swept, agree_swept_by_card, agree_listed;

#endif
