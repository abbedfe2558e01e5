"""What happens to a question, a curve, a training step and a request: the steps that docs/draw_house.py draws.

A place is "module:name", without "deniable."; tests/docs/test_house.py checks that each exists, and runs each life to
see that the first places of its steps are called in this order.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what is done, why, where, and what goes on to the next step."""

    title: str
    words: str
    places: tuple[str, ...]
    hands: str = ""

    @property
    def room(self) -> str:
        return self.places[0].partition(".")[0]


@dataclass(frozen=True, slots=True)
class Life:
    """One picture: what it begins with, its steps, and what it ends with."""

    name: str
    title: str
    begins: str
    steps: tuple[Step, ...]
    ends: str


QUESTION = Life(
    "question",
    "The life of a question",
    's.sql("SELECT ward, AVG(age) FROM visits GROUP BY ward", epsilon=0.1), on a table that was registered before',
    (
        Step(
            "Take the question",
            "The session has the tables, the budget and the ledger. A frame (s.table) enters at step 4.",
            ("queries.session:Session.sql",),
            "SQL text",
        ),
        Step(
            "Read the text",
            "sqlglot parses it; everything outside the documented dialect is refused by a public rule, free of charge.",
            ("queries.sql.sql_reader:parse", "queries.sql.dialect:read"),
            "a syntax tree",
        ),
        Step(
            "Turn it into relations and measures",
            "Each part of the SELECT becomes a node with a stability, or an expression with public bounds.",
            (
                "queries.sql.from_clause:Relations.filtered",
                "queries.sql.name_scope:Scope.over",
                "queries.relations.operators:typed",
                "queries.sql.group_by:grouped",
                "queries.sql.aggregate_functions:aggregate",
            ),
            "relations, keys and measures",
        ),
        Step(
            "Make one record of it",
            "Questions that mean the same get the same canonical form, and so the same hash in the ledger.",
            ("queries.plan.question:asked", "queries.plan.question:question_hash"),
            "a Question",
        ),
        Step(
            "Plan statistics and sensitivities",
            "A recipe says which integer statistics each measure needs, and how far one unit can move them.",
            (
                "queries.plan.noise_planner:plan",
                "queries.plan.estimators:recipe",
                "queries.relations.exact_statistics:Collect.moves",
                "queries.relations.work_bound:check_work",
            ),
            "a NoisePlan: no data was read so far",
        ),
        Step(
            "Price it and choose the noise",
            "epsilon becomes a cost in the budget's currency; every statistic gets a mechanism for its share.",
            (
                "queries.plan.pricing:AskedCost.cost",
                "ledger.budget:Budget.cost",
                "queries.plan.noise_planner:noise",
                "mechanisms.additive_noise:Gaussian.whole",
            ),
            "a Cost, and noise that is not drawn yet",
        ),
        Step(
            "Look for a finer answer",
            "If a question by finer keys was answered before, its noisy cells are added up, free of charge.",
            ("queries.answer.rollups:Finer.look",),
            "otherwise: a question to pay for",
        ),
        Step(
            "Reserve the cost",
            "Stored before data is read, or refused: BudgetExceeded. A repeated question gets its sealed answer, free.",
            (
                "ledger.ledger:Ledger.reserve_or_replay",
                "ledger.spending_accounts:refuse",
                "ledger.stores.store:Store.write",
            ),
            "an open Entry",
        ),
        Step(
            "Collect exact statistics",
            "The engine gets SQL that was generated from the plan; the analyst's text never reaches it.",
            ("queries.engines.duckdb:DuckDBEngine.collect", "queries.engines.sql_generation:write"),
            "integers for each group",
        ),
        Step(
            "Add noise",
            "One of three places where exact numbers meet noise. Samplers are exact, bits cryptographic.",
            (
                "queries.answer.release:release",
                "mechanisms.additive_noise:Gaussian.draw",
                "noise.samplers:rounded_gaussian",
                "noise.entropy:SystemEntropy.fill",
            ),
            "noisy integers: from here on everything is post-processing",
        ),
        Step(
            "Seal the answer",
            "The ledger stores its bytes, chained by a hash. Only then may the answer leave.",
            ("ledger.ledger:Ledger.seal",),
            "a sealed Entry",
        ),
        Step(
            "Show it",
            "Measures are computed from noisy statistics, with confidence intervals, notes and a receipt.",
            ("queries.answer.answer:Answer", "ledger.currency:Shape"),
        ),
    ),
    "Ends with an Answer: a small table of noisy numbers, .guarantee, .receipt. Steps 1 to 7 cost nothing.",
)

CURVE = Life(
    "curve",
    "The life of a curve",
    "(curves.gaussian(sigma=2)**10 * curves.laplace(scale=4) * other).delta(epsilon=5)",
    (
        Step(
            "Make an atom",
            "Arguments are checked once, here. Decimals are kept exactly as they were written.",
            (
                "curves.atoms.mechanism_atoms:gaussian",
                "curves.curve_arguments:positive",
                "curves.atoms.mechanism_atoms:GaussianAtom",
            ),
            "an Atom: parameters and a name, no numerics",
        ),
        Step(
            "Multiply",
            "* and ** only join the factors of a symbolic product. Nothing is computed before a number is asked for.",
            ("curves.curve:Curve.of", "curves.curve:Curve.__pow__", "curves.curve:Curve.__mul__"),
            "a Curve: atoms with their counts",
        ),
        Step(
            "Ask for a number",
            "A reading: epsilon, delta, beta, renyi, gdp … Results are computed now, and remembered.",
            ("curves.curve:Curve.delta", "curves.meaning.curve_readings:delta_bounds"),
            "epsilon",
        ),
        Step(
            "Get the privacy loss of each atom",
            "A law is the distribution of the privacy loss, known by its two tails; there is one in each direction.",
            ("curves.atoms.atom:pair_of", "curves.laws.law:LawPair", "curves.laws.closed_form:GaussianLaw"),
            "a pair of laws for each atom",
        ),
        Step(
            "Take the tightest route",
            "Gaussians merge by μ²; one law alone has a closed form. If all moments are known, a contour integral.",
            ("curves.composition.factor_merging:simplify", "curves.composition.law_product:Product.delta"),
            "otherwise: several laws, each with a power",
        ),
        Step(
            "Put laws on a lattice",
            "Masses on an even grid of losses: one grid law above the true law, one below it.",
            (
                "curves.composition.tilt_plan:plan_table",
                "curves.composition.lattice:above",
                "curves.composition.lattice:below",
                "curves.laws.closed_form:LaplaceLaw.tails",
            ),
            "grid laws, a step and a window",
        ),
        Step(
            "Compose by FFT",
            "Tilted exponentially for tiny δ. Errors of truncation, aliasing and round-off are bounded and recorded.",
            ("curves.composition.compose:compose",),
            "a DeltaPanel for each side",
        ),
        Step(
            "Read the panels",
            "A panel bounds δ at every ε, all numerical errors included.",
            ("curves.composition.delta_panel:DeltaPanel.delta",),
            "a lower and an upper bound",
        ),
        Step(
            "Round outward",
            "delta() returns the upper end, delta_bounds() both. The worse direction wins.",
            ("curves.outward_rounding:ordered",),
        ),
    ),
    "Ends with a number on the safe side. The room knows no data, no randomness and no files.",
)

TRAINING = Life(
    "training",
    "The life of a training step",
    "for x, y in trainer: trainer.backward(cross_entropy(model(x), y, reduction='none'))",
    (
        Step(
            "Count the step",
            "The step is counted before it begins, also in a ledger that pays. The plan fixed noise and price before.",
            ("learn.torch.trainer:Trainer.__iter__", "learn.torch.run_payment:Payment", "learn.plans:DPSGD"),
            "the number of the step",
        ),
        Step(
            "Draw the batch",
            "True Poisson sampling: every record joins with probability rate, by exact coins.",
            ("learn.plans:DPSGD.drawn", "noise.samplers:bernoulli"),
            "places of records, cut into parts that fit into memory",
        ),
        Step(
            "Hand it out",
            "Hooks begin to listen, and guards note the state of the model, to see what a forward pass changes.",
            (
                "learn.torch.batch_sampling:Records.batch",
                "learn.torch.gradients.bookkeeping:Bookkeeping.listen",
                "learn.torch.guards.batch_guard:BatchGuard.begin",
            ),
            "a batch, on the model's device",
        ),
        Step(
            "Forward pass (the user's code)",
            "Each batch is traced, or compared with a traced program: examples must not mix.",
            (
                "learn.torch.guards.separation_trace:Trace.of",
                "learn.torch.guards.separation_rules:domains",
                "learn.torch.gradients.forward_calls:Listener",
            ),
            "one loss for each example",
        ),
        Step(
            "Check the losses",
            "There is one for each example, from this batch, and nobody changed the weights in between.",
            ("learn.torch.trainer:Trainer.backward", "learn.torch.guards.training_checks:check_losses"),
            "losses",
        ),
        Step(
            "One backward pass",
            "Gradients at layer outputs give per-sample gradients by closed forms, otherwise by vmap.",
            (
                "learn.torch.gradients.bookkeeping:Bookkeeping.gradients",
                "learn.torch.gradients.layers:closed_form",
                "learn.torch.gradients.vmap_rerun:rerun",
            ),
            "captures: what is known of each parameter's gradients",
        ),
        Step(
            "Norms, then clipped sums",
            "Per-sample norms without per-sample gradients in memory where possible; then one weighted sum.",
            (
                "learn.torch.gradients.per_example:PerExample.squared",
                "learn.torch.gradients.gradient_captures:Capture",
                "learn.torch.clip_norms:FlatNorm.factors",
                "learn.torch.gradients.per_example:PerExample.summed",
            ),
            "the clipped sum: one record moves it by at most clip",
        ),
        Step(
            "Add noise",
            "Once a step, over all parts and processes. Exact on a grid (CPU), or in floating point (device).",
            (
                "learn.torch.gradient_noise:ExactNoise.add",
                "learn.torch.gradient_noise:DeviceNoise",
                "learn.torch.kernels.grid_noise_kernel:GridNoise.add",
            ),
            "a noisy sum: from here on everything is post-processing",
        ),
        Step(
            "Step",
            "Divided by the expected batch size, put into .grad, and the user's own optimizer steps.",
            ("learn.torch.run_history:History.stepped", "learn.torch.optimizers:AdamBC"),
        ),
    ),
    "Ends with new weights. trainer.guarantee holds for the whole plan; trainer.epsilon(delta=…) for the steps begun.",
)

REQUEST = Life(
    "request",
    "The life of a request",
    "POST /v1/questions, with a bearer token and an Idempotency-Key",
    (
        Step(
            "Arrive whole",
            "Headers and body come within a set time, or the connection is closed.",
            ("server.requests.connections:protocol", "server.operations.server_processes:configured"),
            "an ASGI request",
        ),
        Step(
            "Pass the gate, once",
            "Rate limits by address and by person; the token is checked; an error becomes a problem+json.",
            (
                "server.requests.request_gate:RequestGate.__call__",
                "server.access.rate_limits:Buckets.take",
                "server.access.bearer_tokens:TokenGate",
                "server.catalogue.people:TokenRecord.usable",
                "server.problems:Problem",
            ),
            "a Person with a role",
        ),
        Step(
            "Find the route",
            "The table of roles says who may do what; the body is a pydantic model. A fast lane skips FastAPI.",
            (
                "server.roles:may",
                "server.requests.route_shortcut:Lane",
                "server.request_bodies:Question",
                "server.routes.question_routes:router",
            ),
            "a typed body",
        ),
        Step(
            "Wait for a turn",
            "Work runs in threads, to completion, few at a time for each person.",
            ("server.requests.request_desk:Desk.once", "server.operations.work_turns:Turns.start"),
            "a place in a thread",
        ),
        Step(
            "Claim the idempotency key",
            "The same key with the same body gets the stored answer, and is charged once.",
            ("server.catalogue.kept_requests:Requests.claim",),
            "otherwise: new work",
        ),
        Step(
            "Ask the curator",
            "The dataset must be visible to this person, and its ledger must not be older than the witness knows.",
            (
                "server.curator:Curator.ask",
                "server.datasets.open_datasets:Datasets",
                "server.datasets.ledger_witness:Witness.check",
            ),
            "an open session, and who pays",
        ),
        Step(
            "Answer the question",
            "The life of a question, in the same Session as in a notebook. The server itself draws no noise.",
            ("queries.session:Session.sql", "ledger.ledger:Ledger.reserve_or_replay"),
            "an Answer, sealed",
        ),
        Step(
            "Note the release",
            "In the catalogue, in one transaction with the new end of the ledger's chain.",
            (
                "server.curator:Curator.note",
                "server.datasets.ledger_witness:Witness.released",
                "server.catalogue.catalogue:Catalogue.add_releases",
            ),
            "a release that can be found again",
        ),
        Step(
            "Write it as JSON, and keep it",
            "The answer to this key is stored before it leaves.",
            ("server.api_records:answer_record", "server.catalogue.kept_requests:Requests.keep"),
            "bytes",
        ),
        Step(
            "Leave on the grid",
            "Answers leave at public times only, so the duration of the work does not show.",
            ("server.requests.answer_times:AnswerGrid.leave",),
        ),
    ),
    "Ends with a response. The console (server.console) makes pages of the same calls to the curator.",
)

LIVES = (QUESTION, CURVE, TRAINING, REQUEST)
