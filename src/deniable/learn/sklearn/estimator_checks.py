"""The checks of scikit-learn that a private estimator cannot pass, and why."""

from __future__ import annotations

from typing import Any, Final

from sklearn.base import is_classifier, is_regressor

_NOISE: Final = "compares two fits, which have different noise"
_ALL: Final = {
    "check_estimators_empty_data_messages": "an error for an empty table would distinguish it from its neighbours",
    "check_fit_idempotent": _NOISE,
}
_SUPERVISED: Final = {
    "check_supervised_y_no_nan": "a target that is not a number is left out; an error would reveal it",
    "check_supervised_y_2d": _NOISE,
}
_CLASSIFIERS: Final = {
    "check_classifiers_regression_target": "labels that were not declared are left out; an error would reveal them",
    "check_classifiers_classes": "takes the labels from the data; they must be declared",
    "check_classifiers_train": "takes the labels from the data; they must be declared",
    "check_classifier_data_not_an_array": _NOISE,
}
_REGRESSORS: Final = {
    "check_regressors_int": _NOISE,
    "check_regressor_data_not_an_array": _NOISE,
}


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    """The checks of scikit-learn that this estimator may fail, each with its reason, for the argument of the same name
    of `check_estimator` and `parametrize_with_checks`.

    A check that compares two fits passes if the noise happens to be small. All checks that are not listed pass.

    >>> from deniable.learn.sklearn import PCA, expected_failed_checks
    >>> sorted(expected_failed_checks(PCA(bounds=(-20, 20), epsilon=5.0, delta=1e-6)))
    ['check_estimators_empty_data_messages', 'check_fit_idempotent']
    """
    found = dict(_ALL)
    if is_classifier(estimator):
        found |= _SUPERVISED | _CLASSIFIERS
    elif is_regressor(estimator):
        found |= _SUPERVISED | _REGRESSORS
    return found
