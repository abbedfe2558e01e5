"""Models: private training for PyTorch, private estimators for scikit-learn."""
