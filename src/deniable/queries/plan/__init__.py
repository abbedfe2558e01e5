"""From a question to noise: what is collected, which noise it gets, and what that costs. No data is read here.

    question, canonical_form     a question as a record, and one form (and hash) for questions that mean the same
    refusals, fresh_names        public rules with examples, and column names that do not collide
    noise_families               Gaussian and Laplace noise: mechanisms, precisions, words
    noise_planner                statistics, their sensitivities, shares of the cost, and the noise
    estimators, single_quantile  which statistics each measure needs, and what is made of their noisy values
    pricing, answer_size, answer_notes                  what a caller is told before paying
    disjointness                                        whether the parts of a union are disjoint, proved without data

A `Question` comes from `queries.sql` or `queries.frame` and leaves as a `NoisePlan`; `queries.answer.release` draws it.
"""
