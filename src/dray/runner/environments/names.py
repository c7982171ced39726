"""Names of packages that people mean when they mistype one."""

from __future__ import annotations

import difflib
import re

_KNOWN = """
absl-py accelerate aiohttp albumentations altair anthropic apache-beam apex arviz attrs azure-storage-blob beautifulsoup4
bitsandbytes black bokeh boto3 catboost click cloudpickle clip colorama coloredlogs comet-ml cupy cuda-python cvxpy cython
dask dash datasets deepspeed diffusers dill docker einops evaluate faiss-cpu faiss-gpu fastai fastapi filelock fire flask
flax folium gensim gradio graphviz grpcio gym gymnasium h5py horovod huggingface-hub hydra-core hyperopt imageio
imbalanced-learn ipykernel ipython ipywidgets jax jaxlib jinja2 joblib jupyter jupyterlab kaggle keras kornia langchain
lightgbm lightning llvmlite lxml matplotlib mlflow mmcv mmengine monai mpi4py mypy nbformat nltk notebook numba numexpr numpy
nvidia-ml-py omegaconf onnx onnxruntime onnxruntime-gpu openai opencv-python opencv-python-headless optuna pandas peft pillow
pip plotly polars prophet protobuf psutil pyarrow pycocotools pydantic pydicom pymc pyro-ppl pyspark pytest python-dateutil
python-dotenv pytorch-lightning pytz pywavelets pyyaml ray regex requests rich ruff s3fs sacrebleu sacremoses safetensors
scikit-image scikit-learn scikit-optimize scipy seaborn sentence-transformers sentencepiece setuptools shap simpleitk six
sktime spacy sqlalchemy stable-baselines3 statsmodels streamlit sympy tables tabulate tensorboard tensorboardx tensorflow
tensorflow-datasets tensorflow-hub tensorflow-probability tifffile tiktoken timm tokenizers torch torch-geometric torchaudio
torchmetrics torchtext torchvision tornado tqdm transformers triton typing-extensions ultralytics uvicorn vllm wandb wheel
xarray xformers xgboost zarr
""".split()  # noqa: SIM905 - one name a line would be two hundred lines
_OTHERWISE = {
    "cv2": "opencv-python",
    "pil": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "bs4": "beautifulsoup4",
    "pytorch": "torch",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "opencv": "opencv-python",
    "tf": "tensorflow",
    "attr": "attrs",
}


def nearest(name: str) -> "list[str]":
    """Well-known packages whose name is much like `name`, the likeliest first."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    meant = [_OTHERWISE[plain]] if plain in _OTHERWISE else []
    return meant + [n for n in difflib.get_close_matches(plain, _KNOWN, n=3, cutoff=0.75) if n not in meant]


def unknown(name: str, *, in_wheels: bool = False) -> str:
    """What to say when no index has it."""
    where = "the packages that were sent along do not hold" if in_wheels else "there is no package"
    text = "%s `%s`" % (where, name) + ("" if in_wheels else " in the index")
    like = nearest(name)
    return text + ("; did you mean %s?" % " or ".join("`%s`" % n for n in like) if like else "")
