"""TF-IDF of the training texts of crs beside scikit-learn's TfidfVectorizer: same words and settings, a process each."""

import json
import subprocess
import sys
import warnings

from record import data_folders, peak_gib, record, stopwatch

import labelwise

DEFAULT = r"(?u)\b\w\w+\b"  # scikit-learn's own pattern


def measure(who: str, folder: str, ngrams: int, pattern: str) -> None:
    warnings.simplefilter("ignore")
    texts = [document.text for document in labelwise.read_corpus(folder).train]
    before = peak_gib()
    if who == "ours":
        from labelwise.features.tfidf import Tfidf, TfidfSettings

        features = Tfidf(TfidfSettings(ngrams=ngrams, pattern=pattern))
        features.fit(texts[:100])  # kernels from the cache, as on a user's second run
        with stopwatch() as clock:
            matrix = features.fit_transform(texts)
    else:
        from sklearn.feature_extraction.text import TfidfVectorizer

        cut = {"tokenizer": labelwise.features.words.words, "token_pattern": None} if not pattern else {"token_pattern": pattern}
        vectorizer = TfidfVectorizer(ngram_range=(1, ngrams), max_features=200_000, stop_words="english", **cut)
        with stopwatch() as clock:
            matrix = vectorizer.fit_transform(texts)
    print(json.dumps({**clock, "peak_gib": round(peak_gib() - before, 2), "values": int(matrix.nnz)}))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        import labelwise.features.words

        measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
        sys.exit()
    for folder in [folder for folder in data_folders() if folder.name == "crs"]:
        for name, pattern in (("offline tokenizer", ""), ("scikit-learn's", DEFAULT)):
            for ngrams in (1, 5):
                found = {}
                for who in ("ours", "sklearn"):
                    command = [sys.executable, "-W", "ignore", __file__, who, str(folder), str(ngrams), pattern]
                    found[who] = json.loads(
                        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
                    )
                record(
                    "tfidf",
                    corpus="crs",
                    method=f"{ngrams} {name}",
                    ngrams=f"1–{ngrams}",
                    pattern=name,
                    seconds=found["ours"]["seconds"],
                    sklearn_seconds=found["sklearn"]["seconds"],
                    ratio=round(found["sklearn"]["seconds"] / found["ours"]["seconds"], 1),
                    peak_gib=found["ours"]["peak_gib"],
                    sklearn_peak_gib=found["sklearn"]["peak_gib"],
                    values=found["ours"]["values"],
                )
