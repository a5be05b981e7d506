/* The experiments of `tasks`. `words` are what follows the experiment's name; each says `NAME | w INDEX NUMBER`. */
#ifndef TASKS_H
#define TASKS_H

/* Figure 6: WINDOW_COUNT WINDOW_MS STAGGER_COUNT. */
void run_monte_carlo(char **words);
/* Figure 8: WINDOW_COUNT WINDOW_MS STREAM WEIGHTS THEN_WEIGHTS. */
void run_decoders(char **words);
/* Figure 11: DURATION_S. */
void run_locks(char **words);
/* Section 5.6: COUNT NICE DURATION_S. */
void run_spinners(char **words);
/* Section 5.6: NICE QUERY_COUNT. */
void run_server(char **words);

#endif
