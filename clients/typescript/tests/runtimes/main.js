import * as hippocube from "../../dist/index.js";
import { smoke } from "./smoke.js";

console.log(JSON.stringify(await smoke(hippocube, {})));
