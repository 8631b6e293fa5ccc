// What another threshold would have reported: the page is asked for its own answer, so that there is one way to count.
import { $, localise } from "./page.js";

const slider = $("#gate");
if (slider) {
  const show = () => {
    const percent = Number(slider.value).toFixed(1).replace(/\.0$/, "");
    $("#gate-text").textContent = `${percent} %`;
    slider.setAttribute("aria-valuetext", `${percent} percent`);
    $("#gate-toml").textContent = $("#gate-toml").textContent.replace(/min_change = .*/, `min_change = ${Number(percent) / 100}`);
  };
  let newest = 0;
  const ask = async () => {
    const mine = ++newest;
    const address = new URL(location.href);
    address.searchParams.set("gate", slider.value);
    const answer = await fetch(address, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const said = $("#gate-says", page);
    if (mine !== newest) return; // the slider has moved on
    $("#gate-says").replaceChildren(...(said ? said.childNodes : ["It could not be counted; try again in a moment."]));
    localise($("#gate-says"));
  };
  slider.addEventListener("input", show);
  slider.addEventListener("change", ask);
}
