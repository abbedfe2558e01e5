"""Cases whose tests stand beside the code that they attack: which they are, and where."""

from __future__ import annotations

from tests.redteam.cases import Case


def _ledger(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/ledger/test_{file}.py::test_{name}" for name in names)


def _server(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/server/test_{file}.py::test_{name}" for name in names)


def _queries(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/queries/{file}.py::test_{name}" for name in names)


ELSEWHERE: tuple[Case, ...] = (
    Case("B3", "4 × 64 and 2 × 256 threads in processes of their own for the last of a budget in a file",
         "exactly what fits is granted", _ledger("race", "four_processes_of_64_threads_share_the_last_of_a_budget",
                                                 "two_processes_of_256_threads_share_the_last_of_a_budget")),
    Case("B4", "2 × 256 threads on Postgres, READ COMMITTED and SERIALIZABLE", "exactly what fits is granted",
         _ledger("race", "the_same_on_postgres")),
    Case("B5", "kill -9 before every SQL statement and at random moments, in files and on Postgres; a ledger that commits late as control",
         "spent ≥ released; it opens again; nobody is locked out",
         _ledger("crash", "two_hundred_kills_at_random_moments_and_one_before_each_statement",
                 "the_victims_would_find_a_ledger_that_commits_late", "kills_before_each_statement_of_a_shared_database",
                 "kills_before_each_statement_and_at_random_moments_on_postgres", "a_log_torn_anywhere_leaves_a_whole_beginning")
         + _ledger("database", "a_crash_of_the_server_forgets_nothing")),
    Case("B6d", "a disk that fills up at any byte (RLIMIT_FSIZE), a file that may only be read", "nothing is granted that is not written",
         _ledger("crash", "a_full_disk_grants_nothing_that_is_not_written", "a_file_that_may_only_be_read")),
    Case("B7c", "the same key and body again, a crowd with one key, a failed run again", "one charge, the same bytes",
         _server("questions", "the_same_key_and_body_are_one_charge_and_the_same_bytes", "a_crowd_with_one_key_is_one_charge",
                 "a_refine_is_charged_once_for_one_key", "a_run_that_fails_is_charged_and_looks_like_any_other")
         + _server("grid", "a_client_that_hangs_up_changes_nothing")),
    Case("B7d", "the same key for another body or another route", "409, nothing charged",
         _server("questions", "the_same_key_for_another_body_or_route_is_a_conflict")),
    Case("B9", "10,000 × 0.1", "1000 exactly, of the dataset and of a share",
         _ledger("ledger", "ten_thousand_tenths_fit_exactly_into_a_thousand")
         + _ledger("accounts", "ten_thousand_tenths_of_a_share_are_a_thousand_exactly")),
    Case("B10", "the clock is set back, or forward", "never extra budget; the lifetime does not refill",
         _ledger("accounts", "a_clock_set_back_gives_nothing", "a_clock_set_forward_lends_from_later",
                 "a_window_refills_on_its_border_and_the_lifetime_does_not")),
    Case("B11", "a burst around the border of a window", "at most twice its limit, as documented",
         _ledger("accounts", "around_a_border_at_most_twice_the_limit")),
    Case("B12b", "an old file of the ledger, or an old database, is put back", "it does not open beside a newer checkpoint",
         _ledger("evidence", "a_ledger_older_than_its_checkpoint_does_not_open", "a_restored_database_does_not_open")),
    Case("B12e", "an older ledger after each single answer, a limit, a failed run, a further name; catalogue and ledger put back together",
         "refused for that family, whose owner is told what to do; the others go on",
         _server("restored", "an_older_ledger_after_a_crash_was_accepted", "every_single_answer_is_a_checkpoint",
                 "a_ledger_that_is_gone_is_not_made_anew", "what_is_no_answer_is_not_forgotten_either",
                 "the_other_families_go_on_and_whoever_runs_it_is_told",
                 "checkpoints_are_signed_after_so_many_answers_or_seconds", "a_checkpoint_that_was_taken_away_is_missed",
                 "older_entries_in_a_database_are_refused", "a_rotation_signs_for_no_older_ledger")),
    Case("B24", "another or a lost state folder on one Postgres; a second server with a folder of its own, also at the same moment",
         "it does not start, makes no key, and says what to copy",
         _server("state", "another_state_folder_on_one_database_gave_a_fresh_budget",
                 "a_container_without_its_volume_is_refused_after_a_restart",
                 "of_two_folders_that_start_at_once_one_is_the_server")),
    Case("B24b", "a state folder without its key, without its catalogue, copied and served twice, or with an older catalogue",
         "it does not start, or registers nothing",
         _server("state", "a_lost_key_is_not_made_anew", "a_lost_folder_beside_kept_ledgers_is_refused",
                 "a_copied_folder_is_not_served_beside_the_first",
                 "an_older_catalogue_beside_newer_ledgers_registers_nothing")),
    Case("B24c", "the same file where all marks are lost: by its place, and by what is in it", "the family's budget goes on",
         _server("state", "the_same_file_is_known_without_its_marks")),
    Case("B25", "next year's extract of the same people: other cells, as CSV or Parquet, renamed, half of them, many more; or named as kin of another",
         "refused until the owner says same (one budget) or others, which is signed in the ledgers of both",
         _server("people", "next_years_extract_got_a_fresh_budget_in_silence",
                 "the_same_people_are_one_family_and_that_is_signed",
                 "others_have_a_budget_of_their_own_and_the_reason_is_signed_for_auditors",
                 "another_form_is_asked_about_as_well", "ids_are_the_same_however_they_are_written",
                 "naming_a_family_of_other_people_does_not_pass_by_the_question",
                 "datasets_from_before_there_were_sketches_are_looked_at")
         + _ledger("notes", "a_forged_statement_is_seen")),
    Case("A14b", "an owner registers ids to learn whether they are in another owner's data; an analyst looks for what owners chose",
         "the same answer either way; auditors alone see the pair",
         _server("people", "an_owner_learns_nothing_of_the_ids_in_anothers_data_and_an_auditor_does",
                 "analysts_see_nothing_of_the_choice")),
    Case("B13", "the same data under another name: one row or column changed, half of the people, another order or format",
         "the family's budget goes on, with a warning",
         _server("datasets", "known_data_goes_on_spending_from_its_budget", "known_data_in_another_format_is_still_known",
                 "other_data_of_a_family_needs_another_name_of_its_table", "other_people_with_the_same_numbers_are_new")),
    Case("B12c", "a hard link, a symbolic link, a bind mount, a renamed file, a copy of a ledger; also while it is open",
         "one budget: the same ledger, or refused until its owner says that it was moved",
         _ledger("one_place", "a_hard_link_made_while_a_ledger_is_open_gives_no_second_budget",
                 "a_hard_link_that_takes_the_place_of_a_ledger_is_refused", "a_symbolic_link_finds_the_same_ledger",
                 "a_bind_mount_of_the_file_alone_is_another_place", "a_log_that_was_left_behind_is_named",
                 "a_copy_is_refused_until_its_owner_says_that_it_was_moved",
                 "an_older_copy_in_the_same_place_is_another_file")),
    Case("B13b", "a symbolic or hard link of a table is asked from the shell", "the account of the table, or none",
         ("tests/test_cli_accounts.py::test_a_symbolic_link_to_a_table_spends_from_the_same_account",
          "tests/test_cli_accounts.py::test_a_hard_link_to_a_table_gets_no_second_account",
          "tests/test_cli_accounts.py::test_a_file_that_has_an_account_gets_no_second_one_by_naming_another_ledger",
          "tests/test_cli_accounts.py::test_a_hard_linked_table_without_an_account_is_asked_once_it_has_one_name")),
    Case("B13c", "an answer is asked again or refined after the table changed", "another version, another question: never merged",
         _queries("test_versions", "a_changed_table_is_asked_anew_and_never_merged", "whatever_changes_is_another_version",
                  "answers_from_before_there_were_versions_are_not_replayed")),
    Case("B15b", "analysts collude on every kind of store", "no more than the dataset has",
         _ledger("accounts", "analysts_who_collude_get_no_more_than_the_dataset_has")),
    Case("B17b", "every adaptive strategy on small filters, by enumeration; a composition that is no filter as control",
         "the filter's claim holds",
         tuple(f"tests/curves/test_filters.py::test_{name}" for name in (
             "pure_filter_holds_for_every_strategy_exactly", "gaussian_filter_holds_for_every_strategy",
             "an_adversary_who_always_asks_for_what_is_left_gets_no_more",
             "multiplying_general_curves_and_stopping_at_a_border_is_invalid"))),
    Case("B19", "an adjustment by somebody else, or without a signature", "refused; the owner's is a signed entry that all see",
         _ledger("accounts", "only_a_signature_changes_the_limit_of_the_dataset", "an_owner_is_the_only_one_who_signs",
                 "the_guarantee_is_the_largest_limit_there_ever_was")
         + _server("datasets", "an_adjustment_is_a_signed_entry_that_everybody_sees")),
    Case("E13d", "every operator on neighbours in a local session; questions drawn from the grammar", "what is seen is the same",
         _queries("test_neighbours", "every_operator_looks_alike_on_neighbours", "questions_of_the_grammar_look_alike_on_neighbours")),
    Case("E16c", "texts cut, glued, bent and of raw bytes", "a question or one of our refusals, soon",
         _queries("test_fuzz", "texts_of_the_grammar", "texts_that_are_hardly_sql", "texts_that_were_made_to_hurt")),
    Case("E18", "people without an id, with a blank one, with one that differs in case or spaces", "nobody is somebody else; NULL is nobody",
         _queries("engines/test_registration", "ids_are_compared_exactly_and_null_is_nobody", "bounds_move_no_person_into_another",
                  "text_is_cut_and_names_of_people_are_not")),
    Case("E19", "the file or its types change after it was registered", "it is not asked any more",
         _server("datasets", "a_file_that_changed_since_is_not_asked")),
    Case("Q4b", "unions of a table with itself, joins of a person's rows", "the sensitivity grows, or it is refused",
         _queries("test_leaks", "no_join_makes_many_rows_of_a_persons_few") + _queries("test_batch", "what_is_not_disjoint_is_paid_for_each")),
    Case("T7", "the run is out of memory or time, its process is killed, it hangs", "answered as if nobody were there, after a fixed time, charged; the owner alone is told",
         _queries("engines/test_apart", "a_failure_is_one_of_the_closed_codes_for_the_owner_alone", "a_process_that_hangs_is_ended",
                  "a_killed_process_is_replaced_and_what_was_asked_next_is_answered")
         + _queries("test_unfinished", "a_run_that_fails_is_answered_as_if_nobody_were_there", "whenever_a_run_fails_its_answer_comes_at_one_time")
         + _server("questions", "a_run_that_fails_is_charged_and_looks_like_any_other")),
    Case("T8", "how long the noise takes, by how large it is; refusals, failures, replays by their time", "everything waits for the grid",
         _server("grid", "every_kind_of_answer_waits_for_the_grid", "failures_wait_for_the_grid_too",
                 "everything_leaves_at_a_power_of_two_of_the_step")),
    Case("W2c", "on Spark, LIKE with many wildcards that makes it go back, and planning that takes longer than the limit", "linear, and answered at the limit",
         _queries("engines/test_spark", "planning_is_part_of_the_time_of_a_question", "like_with_many_wildcards_ends",
                  "a_pattern_of_several_pieces_is_written_so_that_it_never_goes_back")),
    Case("N1", "the lattice of floats in sums, and laws that are not exact", "noise on whole numbers, exact laws",
         ("tests/audit/test_zoo.py::test_the_broken_are_caught", "tests/audit/test_zoo.py::test_the_sound_are_left_alone")),
    Case("N2", "sums that overflow, are rounded, or added in another order", "in whole units no neighbours are further apart than claimed; wrong rules are found out",
         _queries("test_sensitivity", "no_neighbours_are_further_apart_than_claimed", "a_wrong_rule_is_found_out")
         + _queries("engines/test_sensitivity", "duckdb_moves_no_further_than_claimed", "a_wrong_rule_is_found_out_through_duckdb")
         + _queries("engines/test_statistics", "sums_are_rounded_to_the_grid_row_by_row_and_clamped")),
    Case("N3b", "forked workers, threads, a fork behind Python's back, global seeds", "streams differ; seeds have no effect",
         tuple(f"tests/noise/test_entropy.py::test_{name}" for name in (
             "fork_gives_different_streams", "pools_of_processes_draw_differently", "a_fork_behind_the_back_of_python_is_noticed",
             "threads_draw_differently", "global_seeds_have_no_effect", "no_seed_on_any_private_path"))),
    Case("N6", "the same question in other words", "the same hash",
         _queries("test_canonical", "spellings_that_mean_the_same", "questions_that_differ")),
    Case("N7", "the same question again and again, to average its noise", "one draw, and nothing to pay",
         _queries("test_session", "an_answer_is_charged_before_it_is_given_and_replayed_for_nothing")
         + _server("questions", "the_same_question_again_is_the_same_answer_for_nothing")),
    Case("N9", "do 95 % noise intervals hold 95 times in 100?", "they do, for every measure and currency",
         _queries("test_coverage", "intervals_hold_the_answer_without_noise")),
    Case("N10", "a sensitivity computed in floats, a hair below √k or k: math.sqrt(3), (0.1 + 0.7) * 10", "the noise and the curve of √k or k",
         tuple(f"tests/mechanisms/test_float_sensitivity.py::test_{name}" for name in (
             "root_three_was_floored_to_root_two", "claims_for_a_root_cover_a_direct_sum", "rho_is_that_of_the_number_under_the_root",
             "eight_was_floored_to_seven", "a_staircase_of_a_hair_below_eight_was_one_step_short"))),
    Case("N11", "local reports that no protocol makes: all bits set, a negative category, two reports in one line", "refused, and nothing of them is told",
         tuple(f"tests/local/test_impossible_reports.py::test_{name}" for name in (
             "a_report_that_cannot_be_was_estimated_from", "a_bloom_filter_that_cannot_be_was_estimated_from",
             "a_refusal_tells_nothing_of_the_reports", "texts_that_encode_never_writes_are_not_read",
             "a_file_with_one_impossible_report_is_not_estimated_from"))),
    Case("A1", "a name in a header: user-name, X-User, X-Role", "means nothing", _server("roles", "names_in_headers_mean_nothing")),
    Case("A3b", "releases and labels of another analyst of the same dataset", "404: there is no such thing",
         _server("roles", "what_belongs_to_others_does_not_exist", "an_analyst_sees_their_own_releases_only")),
    Case("A5d", "script in file names, columns, categories, aliases, SQL, reasons, people and datasets, on every page",
         "inert: nothing runs or is loaded",
         _server("console", "hostile_names_stay_names", "even_a_dataset_or_a_person_of_a_hostile_name_is_only_a_name",
                 "labels_come_in_every_form_and_run_nothing")
         + _server("console_owner", "pictures_escape_their_words_and_stay_inside")),
    Case("A8", "guessing tokens, names and rates", "the same bytes after the same work; twenty wrong ones and one waits",
         _server("auth", "whatever_is_wrong_with_a_token_the_answer_is_the_same", "an_unknown_id_takes_the_same_work_as_a_wrong_secret",
                 "strangers_may_not_knock_for_ever", "a_token_has_a_rate_that_only_its_own_requests_use_up",
                 "a_token_is_kept_as_a_hash_only")),
    Case("A9d", "a flip in any line, a deletion anywhere, every exchange, forged entries that make sense, a fork",
         "the first bad entry is named",
         _ledger("evidence", "a_flip_in_any_line_is_named", "delete_and_cut_are_named", "reorder_is_named",
                 "a_forged_history_must_still_make_sense", "a_fork_is_named_by_whoever_kept_something")
         + _ledger("damage", "flip", "delete_and_close_the_gap", "reorder", "truncate", "put_in")),
    Case("A10", "a label that was edited, or signed with another key", "it is seen",
         _server("records", "an_edited_label_is_seen", "a_label_signed_with_another_key_is_seen")),
    Case("A16", "a key of the owner that nobody vouched for: flipped, forged, replayed and hidden rotations, keys that were replaced",
         "the entry is named, and such a key signs nothing",
         _ledger("rotation", "a_flip_in_any_character_of_a_rotation_is_named", "a_forged_rotation_is_named",
                 "a_rotation_that_is_put_into_the_file_is_not_obeyed",
                 "a_key_that_was_replaced_signs_nothing_and_does_not_come_back")),
)  # fmt: skip
