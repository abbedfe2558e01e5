"""Plans: which statistics a question needs, which noise they get, and what that costs. No data is read here.

    question, canonical_form     a question as a record, and one form (and hash) for questions that mean the same
    named_keys                   the public values of keys: by the schema, or because the question names them
    refusals, fresh_names        public rules with examples, and column names that do not collide
    noise_families               Gaussian and Laplace noise: mechanisms, precisions, words
    noise_planner                statistics, their sensitivities, shares of the cost, and the noise
    recipes                      how a measure is made of noisy statistics: the base class, and noisy values
    estimators, ranked_estimators, single_quantile      the statistics and the estimate of each measure
    dated_extremes               MIN and MAX of dates and timestamps
    noisy_windows                ranks, running sums and moving averages over noisy answers
    window_functions             what each function of such a window reads, computes and refuses
    pricing, answer_size, answer_notes                  cost, errors, size and notes, known before a caller pays
    currency_advice                                     what a budget in the other currency would give
    stated_ratios                                       the largest error of a ratio in a group of a stated size
    disjointness                                        whether the parts of a union are disjoint, proved without data
    exclusive_statistics         statistics of one question about different rows, for which one share of the cost pays

A `Question` comes from `queries.sql` or `queries.frame`. `noise_planner.plan_under` turns it into a `NoisePlan`,
`pricing` into a `Price`, and `noise_planner.noise` into the mechanisms for a cost, which `queries.answer.release` runs.
"""
