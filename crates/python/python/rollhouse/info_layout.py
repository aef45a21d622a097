"""The infos layout of Gymnasium 0.29, for learners written for it."""

from __future__ import annotations

from typing import Any

import numpy as np


def infos_of_029(infos: dict[str, Any], num_envs: int) -> dict[str, Any]:
    """Infos of a step as Gymnasium 0.29 laid them out.

    ``final_obs`` becomes ``final_observation``, and ``final_info``, a dict of arrays with masks, becomes an object
    array [N] with a dict per lane whose episode ended and None elsewhere, in which ``episode`` is too if it was told of the
    batch. Everything else stays as it is.

    Args:
        infos: The infos that ``VectorEnv.step`` returned; not changed.
        num_envs: N.
    """
    if "final_obs" not in infos and "final_info" not in infos:
        return infos
    changed = {key: value for key, value in infos.items() if key not in _RENAMED}
    if "final_obs" in infos:
        changed["final_observation"], changed["_final_observation"] = infos["final_obs"], infos["_final_obs"]
    if "final_info" in infos or "final_obs" in infos:
        # 0.29 gave a final info, if only an empty one, with every final observation.
        mask = infos["_final_info" if "_final_info" in infos else "_final_obs"]
        final = np.full(num_envs, None, dtype=object)
        for lane in np.flatnonzero(mask).tolist():
            final[lane] = lane_info(infos.get("final_info", {}), lane)
            if "episode" in infos and infos["_episode"][lane]:
                # What `statistics` told; scripts look for it where 0.29's wrapper of single envs put it.
                final[lane]["episode"] = {key: values[lane] for key, values in infos["episode"].items()}
        changed["final_info"], changed["_final_info"] = final, mask
    return changed


def lane_info(infos: dict[str, Any], lane: int) -> dict[str, Any]:
    """What vectorised infos say of one lane, as its env gave it: values whose mask is False are left out.

    Args:
        infos: In Gymnasium's layout: per key an array [N], an object array or a nested dict, and a mask under
            ``"_" + key``.
        lane: From 0.
    """
    info: dict[str, Any] = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if mask is None or not mask[lane]:
            # A mask itself, which has none, or nothing said of this lane.
            continue
        info[key] = lane_info(values, lane) if isinstance(values, dict) else values[lane]
    return info


_RENAMED = {"final_obs", "_final_obs", "final_info", "_final_info"}
