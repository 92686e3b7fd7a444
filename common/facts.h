/* Facts: the results of a command, described once, printed for machines or for people. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_FACTS_H
#define COMMON_FACTS_H

#include "common/report.h"
#include "common/output.h"

/* A JSON object of members "name:K other:K", where K says what the argument is:
     i  int64_t             d  int
     n  double; null where it is no number
     t  const char *, of any bytes; NULL: null
     b  int, true or false  o  json_t *, which the object then owns
   NULL when memory is out. */
json_t *facts_of(const char *members, ...);

/* Prints a text in which these stand for members of facts:
     {name}              the member; a list with commas, a list of lists with blanks between
     {name:8.3g}         as printf() prints it with that; integers and text need no letter
     {name:lines}        text of more than one line
     {name*1e-9:8.3g}    a multiple of it
     {name:#word}        "1 word", "2 words"; of a list, how many it has
     {name.other}        a member of a member; {name.0}: of a list
     {?name}             nothing
     [some|other]        `some` if the first member in it says something, which null, false,
                         no text, an empty list and the integer 0 do not; else `other`, if any
     <name:text>         the text for each member of a list; <:text> where facts are one
   Null is "-" where a real number is asked for, else nothing. */
void facts_print(const json_t *facts, const char *text);

/* Prints them as JSON, or as such a text unless standard output is what the command writes (o
   may be NULL), and releases them. Facts of a file of values get the member non_finite
   (finite.h). Returns an exit status. */
int facts_report(json_t *facts, int as_json, const output *o, const char *text);

#endif
