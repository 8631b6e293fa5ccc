// What another gate would have flagged: a replay of the stored changes, nothing is judged anew and nothing is saved.
import { $ } from "./page.js";

const box = $("#whatif");
if (box) {
  const { change, sha } = JSON.parse($("#whatif-data").textContent);
  const slider = $("#gate");
  const show = () => {
    const gate = Number(slider.value) / 100;
    // Neighbouring runs past the gate are one stretch; whether it is real, the noise of the series must say as well.
    const starts = [];
    let inside = false;
    change.forEach((value, i) => {
      const past = value !== null && value >= gate;
      if (past && !inside) starts.push(sha[i]);
      inside = past;
    });
    const percent = Number(slider.value).toFixed(1).replace(/\.0$/, "");
    $("#gate-text").textContent = `${percent} %`;
    slider.setAttribute("aria-valuetext", `${percent} percent`);
    $("#gate-says").textContent = starts.length === 0 ? "No commit of this range would have been flagged." : `${starts.length} ${starts.length === 1 ? "stretch" : "stretches"} would have been looked at, beginning at ${starts.slice(0, 8).join(", ")}${starts.length > 8 ? " …" : ""}.`;
    $("#gate-toml").textContent = $("#gate-toml").textContent.replace(/min_change = .*/, `min_change = ${gate}`);
  };
  slider.addEventListener("input", show);
  show();
}
